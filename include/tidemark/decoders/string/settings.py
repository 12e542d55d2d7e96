"""``decode: {format: string}``."""

from typing import Any, Literal

from tidemark.decoders.settings import DecodeSettings


class Settings(DecodeSettings):
    """The value as UTF-8 text in the column ``value``; a record without a value is a row with null."""

    format: Literal["string"]

    def order(self) -> dict[str, Any]:
        return {"format": self.format}

    def field_types(self) -> dict[str, str]:
        return {"value": "string"}

    def never_null(self) -> set[str]:
        return set()
