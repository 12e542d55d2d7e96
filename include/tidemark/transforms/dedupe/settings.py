"""``transform: [{dedupe: ..}]``."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pydantic import Field, field_validator, model_validator

from tidemark.config.base import Duration
from tidemark.config.values import wrong
from tidemark.transforms.settings import TransformSettings


class Keep(StrEnum):
    """The row of a key that stays."""

    FIRST = "first"
    LAST = "last"


class Settings(TransformSettings):
    """Settings of a transform that keeps one of the rows with the same key, in one partition of one manifest."""

    kind = "dedupe"
    whole_partitions = True

    keys: tuple[str, ...] = Field(
        description="Of the rows of one partition and manifest with the same values here, one stays.",
        examples=[["order_id"]],
        json_schema_extra={"minItems": 1},
    )
    keep: Keep = Field(default=Keep.FIRST, description="Which row of a key stays.")
    within: Duration | None = Field(
        default=None,
        description="Removes a row whose key came at most this long before, also in [an earlier manifest](#dedupe) of "
        "its partition. Not with `keep: last`.",
        examples=["10m"],
    )

    @field_validator("keys")
    @classmethod
    def _some(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if not keys:
            raise wrong("must have at least one entry")
        return keys

    @model_validator(mode="after")
    def _known_rows(self) -> "Settings":
        if self.within is not None and self.keep is Keep.LAST:
            raise wrong("cannot have within with keep: last: the last row of a key may come in a later manifest")
        if self.within is not None and not self.within:
            raise wrong("must have a within longer than 0s")
        return self

    @property
    def look_back(self) -> timedelta | None:
        return self.within

    def options(self, code: Mapping[str, str]) -> dict[str, Any]:
        del code
        within_us = None if self.within is None else self.within // timedelta(microseconds=1)
        return {"keys": list(self.keys), "keep": self.keep.value, "within_us": within_us}
