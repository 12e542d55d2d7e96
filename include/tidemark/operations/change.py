"""One difference between a pipeline file and what exists."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One effect that a changed pipeline file has on its manifests, sinks and published output. ``next_step`` says how
    to go on safely; None if nothing needs to be done.
    """

    what: str
    next_step: str | None = None
