"""``transform: [{dedupe: ..}]``."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from tidemark.config.values import wrong
from tidemark.transforms.settings import TransformSettings


class Settings(TransformSettings):
    """Of the rows with one key, in one partition of one manifest, the first stays."""

    kind = "dedupe"
    whole_partitions = True

    keys: tuple[str, ...] = Field(
        description="The columns that are the key.", examples=[["order_id"]], json_schema_extra={"minItems": 1}
    )

    @field_validator("keys")
    @classmethod
    def _some(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if not keys:
            raise wrong("must have at least one entry")
        return keys

    def options(self, code: Mapping[str, str]) -> dict[str, Any]:
        del code
        return {"keys": list(self.keys)}
