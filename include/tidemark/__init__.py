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
        compare,
        complete,
        dead_letters,
        history,
        hours,
        lag,
        lanes,
        manifests,
        objects,
        plan,
        replay,
        replay_dead_letters,
        show,
        status,
        timeline,
        where,
    )
    from tidemark.errors import TidemarkError
    from tidemark.manifest import Counts, ManifestState, WithoutRows
    from tidemark.views.checks import ComparedView, CompletenessView, DifferenceView, MissingView
    from tidemark.views.dead_letters import (
        BroughtBackView,
        DeadLettersView,
        DeadLetterView,
        LetterGroupView,
        LetterPlaceView,
        NotReplayedView,
        ReturnedView,
    )
    from tidemark.views.lanes import LaneView, LettersPartView, PartView
    from tidemark.views.manifests import (
        ArchivedView,
        AttemptView,
        EventView,
        ManifestHistoryView,
        ManifestView,
        PublicationView,
        RangeView,
    )
    from tidemark.views.objects import ObjectView
    from tidemark.views.offsets import CoveringManifestView, LocatedView, OffsetView, SpanView
    from tidemark.views.pipelines import AuditView, DecisionView, LagView, ProblemView, StatusView
    from tidemark.views.runs import EndView, RunView
    from tidemark.views.times import HourView, PeriodView, TimelineView

__version__ = VERSION
__all__ = [
    "ArchivedView",
    "AttemptView",
    "AuditView",
    "BroughtBackView",
    "ComparedView",
    "CompletenessView",
    "Counts",
    "CoveringManifestView",
    "DeadLetterView",
    "DeadLettersView",
    "DecisionView",
    "DifferenceView",
    "EndView",
    "EventView",
    "HourView",
    "LagView",
    "LaneView",
    "LetterGroupView",
    "LetterPlaceView",
    "LettersPartView",
    "LocatedView",
    "ManifestHistoryView",
    "ManifestState",
    "ManifestView",
    "MissingView",
    "NotReplayedView",
    "ObjectView",
    "OffsetView",
    "PartView",
    "PeriodView",
    "ProblemView",
    "PublicationView",
    "RangeView",
    "ReturnedView",
    "RunView",
    "SpanView",
    "StatusView",
    "TidemarkError",
    "TimelineView",
    "WithoutRows",
    "__version__",
    "audit",
    "compare",
    "complete",
    "dead_letters",
    "history",
    "hours",
    "lag",
    "lanes",
    "manifests",
    "objects",
    "plan",
    "replay",
    "replay_dead_letters",
    "show",
    "status",
    "timeline",
    "where",
]


if not TYPE_CHECKING:  # a type checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(import_module("tidemark.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
