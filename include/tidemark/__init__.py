"""Tidemark copies Kafka topics and RabbitMQ streams into lakes in recorded micro-batches, exactly once.

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
    from tidemark.lifecycle.plan import End, PlannedRun
    from tidemark.model.expectations import ExpectationCount, RecordPlace
    from tidemark.model.json_values import json_value
    from tidemark.model.manifest import AttemptProcess, Counts, ManifestState, Publication, WithoutRows
    from tidemark.model.offsets import Range, TopicPartition
    from tidemark.model.problem import Problem
    from tidemark.model.unknown_fields import UnknownField
    from tidemark.operations.audit import Compared
    from tidemark.operations.bring_back import BroughtBack, Returned
    from tidemark.operations.complete import Completeness, MissingPart
    from tidemark.operations.dead_letters import DeadLetters, LetterPlace, PublishedDeadLetter, ReasonGroup
    from tidemark.operations.hours import Hour
    from tidemark.operations.lag import Lag
    from tidemark.operations.locate import ChainOffset, CoveringManifest, Span
    from tidemark.operations.status import LastAudit, PipelineProblem, Retry, Status
    from tidemark.operations.timeline import Period, Timeline
    from tidemark.sinks.located import Located
    from tidemark.views.lanes import LaneView, LettersPartView, PartView
    from tidemark.views.manifests import AttemptView, EventView, ManifestHistoryView, ManifestView
    from tidemark.views.objects import ObjectView
    from tidemark.views.pipelines import DecisionView

__version__ = VERSION
__all__ = [
    "AttemptProcess",
    "AttemptView",
    "BroughtBack",
    "ChainOffset",
    "Compared",
    "Completeness",
    "Counts",
    "CoveringManifest",
    "DeadLetters",
    "DecisionView",
    "End",
    "EventView",
    "ExpectationCount",
    "Hour",
    "Lag",
    "LaneView",
    "LastAudit",
    "LetterPlace",
    "LettersPartView",
    "Located",
    "ManifestHistoryView",
    "ManifestState",
    "ManifestView",
    "MissingPart",
    "ObjectView",
    "PartView",
    "Period",
    "PipelineProblem",
    "PlannedRun",
    "Problem",
    "Publication",
    "PublishedDeadLetter",
    "Range",
    "ReasonGroup",
    "RecordPlace",
    "Retry",
    "Returned",
    "Span",
    "Status",
    "TidemarkError",
    "Timeline",
    "TopicPartition",
    "UnknownField",
    "WithoutRows",
    "__version__",
    "audit",
    "compare",
    "complete",
    "dead_letters",
    "history",
    "hours",
    "json_value",
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
# ``__getattr__`` looks for these names here: ``api`` has the functions, the others have types that they return.
_HOMES = (
    "api", "model.expectations", "model.json_values", "model.manifest", "model.offsets", "lifecycle.plan",
    "operations.bring_back", "operations.complete", "operations.dead_letters", "operations.locate",
    "operations.status", "operations.timeline", "sinks.located", "views.lanes", "views.manifests",
)  # fmt: skip


if not TYPE_CHECKING:  # a type checker that saw ``__getattr__`` would accept any name

    def __getattr__(name: str) -> object:
        if name in __all__:
            homes = (vars(import_module(f"tidemark.{home}")) for home in _HOMES)
            return next(home[name] for home in homes if name in home)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
