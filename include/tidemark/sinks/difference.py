"""A result of an audit: one thing that is not as recorded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """``manifest`` is the id of the manifest, None when it belongs to none."""

    manifest: int | None
    what: str
    next_step: str
