"""A result of an audit: one thing that is not as recorded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """``manifest_id`` is None when it belongs to no manifest. ``example`` has values of a row: it is told to whoever
    compares, and kept nowhere."""

    manifest_id: int | None
    what: str
    next_step: str
    example: str = ""
