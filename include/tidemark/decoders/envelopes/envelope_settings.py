"""``decode: {.., envelope: ..}``: the kind alone, or the kind with its settings below it."""

from abc import abstractmethod
from collections.abc import Collection
from typing import Annotated, Any, ClassVar

from pydantic import SerializeAsAny

from tidemark.config.base import OneKind, Section
from tidemark.kinds import ENVELOPES


class EnvelopeSettings(Section):
    """The settings of one envelope. ``kind`` is its name in the registry."""

    kind: ClassVar[str]

    @abstractmethod
    def further_columns(self) -> Collection[str]:
        """Return the columns that come from other parts than the row, and so are in no key."""

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return what the executors need, with ``kind``."""


EnvelopeEntry = Annotated[SerializeAsAny[EnvelopeSettings] | None, OneKind(ENVELOPES, alone=True)]
