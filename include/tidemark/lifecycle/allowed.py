"""Options that a person grants to one replay; the decision is in the history."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Allowed:
    """``shrink``: publish fewer records than before.

    ``append_again``: for each manifest the sinks that append, and the attempt that each may follow with other rows.
    """

    shrink: bool = False
    append_again: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


NOTHING = Allowed()
