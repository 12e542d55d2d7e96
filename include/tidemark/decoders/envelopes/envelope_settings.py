"""``decode: {.., envelope: ..}``: the kind alone, or the kind with its settings below it."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from pydantic import SerializeAsAny

from tidemark.config.base import OneKind, Section
from tidemark.decoders.envelopes.kinds import ENVELOPES


class EnvelopeSettings(Section):
    """The settings of one envelope. ``kind`` is its name in the registry."""

    kind: ClassVar[str]

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What the executors need, with ``kind``."""


EnvelopeEntry = Annotated[SerializeAsAny[EnvelopeSettings] | None, OneKind("envelope", ENVELOPES, alone=True)]
