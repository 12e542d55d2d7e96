"""What an entry of ``sinks`` may say: the part that every kind of sink shares."""

from abc import abstractmethod
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tidemark.config.base import Name, OneKind, Section
from tidemark.decoders.settings import DecodeSettings
from tidemark.sinks.kinds import SINKS


class SinkSettings(Section):
    """Where rows go: what every kind of sink has. ``kind`` is its name in the registry.

    ``stores_nul`` says whether its text may hold the character NUL; else such a record is a dead letter.
    """

    kind: ClassVar[str]
    stores_nul: ClassVar[bool] = True

    name: Name = Field(description="Name of this sink, unique in the pipeline.")

    @abstractmethod
    def meets(self, other: "SinkSettings") -> bool:
        """Whether two sinks would write into one another's target."""

    @abstractmethod
    def decides_output(self) -> str:
        """What of this sink decides its rows, for the fingerprint; where they lie does not."""

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What the executors must know beside name and kind. No secret."""

    @abstractmethod
    def why_not(self, decode: DecodeSettings) -> str:
        """Why this sink cannot hold what is decoded, as a sentence that goes on from its key; empty when it can."""

    @abstractmethod
    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        """Where a row of this event time goes; None: where a dead letter goes."""

    def connections(self) -> set[str]:
        """The ids of the Airflow connections that these settings name."""
        return set()

    def folders(self) -> set[str]:
        """The folders that executors and this process must share."""
        return set()


Sink = Annotated[SinkSettings, OneKind("sink", SINKS)]
