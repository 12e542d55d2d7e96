"""Tidemark copies Kafka topics into lakes in recorded micro-batches, exactly once.

The functions named here do what the commands of the same names do; docs/python.md shows them. They are imported when
they are first used: executors import this package too, and have only the standard library and pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidemark.version import VERSION

if TYPE_CHECKING:
    from tidemark.api import audit, complete, hours, manifests, objects, plan, replay, status
    from tidemark.errors import TidemarkError
    from tidemark.manifest import Counts, ManifestState
    from tidemark.views import (
        CompletenessView,
        DifferenceView,
        HourView,
        ManifestView,
        MissingView,
        ObjectView,
        PublicationView,
        RangeView,
        RunView,
        StatusView,
    )

__version__ = VERSION
__all__ = [
    "CompletenessView",
    "Counts",
    "DifferenceView",
    "HourView",
    "ManifestState",
    "ManifestView",
    "MissingView",
    "ObjectView",
    "PublicationView",
    "RangeView",
    "RunView",
    "StatusView",
    "TidemarkError",
    "__version__",
    "audit",
    "complete",
    "hours",
    "manifests",
    "objects",
    "plan",
    "replay",
    "status",
]


if not TYPE_CHECKING:  # a type checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(import_module("tidemark.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
