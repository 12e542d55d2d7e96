"""``transform: [{python: ..}]``."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import Field, field_validator

from tidemark.config.base import Duration, Size
from tidemark.config.values import wrong
from tidemark.transforms.function_settings import FunctionSettings, NameOfFunction


class Settings(FunctionSettings):
    """A function of the ``code`` folder: a pyarrow.RecordBatch in, a pyarrow.RecordBatch out."""

    kind = "python"

    function: NameOfFunction = Field(
        description="A function `pyarrow.RecordBatch -> pyarrow.RecordBatch` of the `code` folder; for short `python: "
        "prices:add_tax`.",
        examples=["prices:add_tax"],
    )
    timeout: Duration = Field(
        default=timedelta(minutes=5),
        description="How long it may work on a batch, else the manifest fails.",
        json_schema_extra={"default": "5m"},
    )
    max_bytes: Size = Field(
        default=2**30,
        description="Bytes that it may return for a batch, as columns, else the manifest fails.",
        json_schema_extra={"default": "1GiB"},
    )

    @field_validator("timeout")
    @classmethod
    def _some_time(cls, timeout: timedelta) -> timedelta:
        if not timeout:
            raise wrong("must be longer than 0s")
        return timeout

    def options(self, code: Mapping[str, str]) -> dict[str, Any]:
        """Return the options for executors. Raises ``ConfigurationError`` if the code does not parse, or lacks the
        function; no code runs.
        """
        return {**super().options(code), "limit_s": self.timeout.total_seconds(), "max_bytes": self.max_bytes}

    def decides_output(self, code: Mapping[str, str]) -> dict[str, Any]:
        return super().options(code)
