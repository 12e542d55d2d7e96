"""Names something that is wrong, the manifest that it is about, and what to do next."""

from dataclasses import dataclass, field, replace
from typing import Self

from tidemark.model.json_values import NOT_IN_JSON


@dataclass(frozen=True)
class Problem:
    """``manifest_id`` is None when it belongs to no manifest.

    ``example`` has values of a row: it is told to whoever looks, and kept nowhere. ``unseen``: nobody could look, so
    nothing is known to be wrong. ``harmless``: readers see nothing of it, and nothing is missing.
    """

    manifest_id: int | None
    what: str
    next_step: str
    example: str = field(default="", metadata=NOT_IN_JSON)
    unseen: bool = field(default=False, metadata=NOT_IN_JSON)
    harmless: bool = field(default=False, metadata=NOT_IN_JSON)

    def __str__(self) -> str:
        where = "" if self.manifest_id is None else f"manifest {self.manifest_id}: "
        return f"{where}{self.what}; next: {self.next_step}"

    def with_example(self) -> Self:
        """The same, with the example in its text."""
        return replace(self, what=f"{self.what}, such as {self.example}", example="") if self.example else self
