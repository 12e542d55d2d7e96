"""``decode: {format: raw}``."""

from typing import Literal

from tidemark.decoders.settings import DecodeSettings


class Settings(DecodeSettings):
    """Key, value, headers and timestamp undecoded. A record without a value is a row like any other."""

    problem_with_headers = "is not for raw records: their rows always have the column headers"
    problem_with_tombstones = "is not for raw records: one without a value is a row like any other"

    format: Literal["raw"]

    def _fields(self) -> dict[str, tuple[str, bool]]:
        return {}
