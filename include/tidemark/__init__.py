"""Tidemark copies Kafka topics into lakes in recorded micro-batches, exactly once.

The functions named here do what the commands of the same names do; docs/python.md shows them. They are imported when
they are first used: executors import this package too, and have only the standard library and pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidemark.version import VERSION

if TYPE_CHECKING:
    from tidemark.api import (
        audit,
        complete,
        dead_letters,
        hours,
        manifests,
        objects,
        plan,
        replay,
        replay_dead_letters,
        status,
    )
    from tidemark.errors import TidemarkError
    from tidemark.manifest import Counts, ManifestState
    from tidemark.views import (
        BroughtBackView,
        CompletenessView,
        DeadLettersView,
        DeadLetterView,
        DifferenceView,
        HourView,
        LetterGroupView,
        LetterPlaceView,
        ManifestView,
        MissingView,
        NotReplayedView,
        ObjectView,
        PublicationView,
        RangeView,
        ReturnedView,
        RunView,
        StatusView,
    )

__version__ = VERSION
__all__ = [
    "BroughtBackView",
    "CompletenessView",
    "Counts",
    "DeadLetterView",
    "DeadLettersView",
    "DifferenceView",
    "HourView",
    "LetterGroupView",
    "LetterPlaceView",
    "ManifestState",
    "ManifestView",
    "MissingView",
    "NotReplayedView",
    "ObjectView",
    "PublicationView",
    "RangeView",
    "ReturnedView",
    "RunView",
    "StatusView",
    "TidemarkError",
    "__version__",
    "audit",
    "complete",
    "dead_letters",
    "hours",
    "manifests",
    "objects",
    "plan",
    "replay",
    "replay_dead_letters",
    "status",
]


if not TYPE_CHECKING:  # a type checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(import_module("tidemark.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
