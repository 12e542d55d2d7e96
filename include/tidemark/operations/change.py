"""One difference between a pipeline file and what exists."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """The effect of a changed file on what exists; ``next_step`` says how to go on safely, and is None where nothing
    needs to be done."""

    what: str
    next_step: str | None = None
