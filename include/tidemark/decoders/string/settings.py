"""``decode: {format: string}``."""

from typing import Literal

from tidemark.decoders.settings import DecodeSettings


class Settings(DecodeSettings):
    """The value as UTF-8 text in the column ``value``; a record without a value is a row with null."""

    format: Literal["string"]

    def _fields(self) -> dict[str, tuple[str, bool]]:
        return {"value": ("string", True)}
