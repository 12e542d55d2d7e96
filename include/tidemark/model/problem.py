"""A problem: what is wrong, with which manifest, and the next step."""

from dataclasses import dataclass, field, replace
from typing import Self

from tidemark.model.json_values import NOT_IN_JSON


@dataclass(frozen=True)
class Problem:
    """A problem; ``manifest_id`` is None if it is not about one manifest.

    ``example`` has values of a row: it is shown but never stored. ``unseen``: the check was not possible, so it is not
    known whether anything is wrong. ``harmless``: readers do not see it, and nothing is missing.
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

    def names(self, command: str) -> bool:
        """Return whether the next step is this command of Tidemark."""
        return command in self.next_step.split()

    def with_example(self) -> Self:
        """Return the problem with the example in its text."""
        return replace(self, what=f"{self.what}, such as {self.example}", example="") if self.example else self
