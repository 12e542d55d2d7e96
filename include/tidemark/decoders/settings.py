"""What ``decode`` of a pipeline file may say: the part that every format shares."""

from abc import abstractmethod
from typing import Any

from tidemark.config.base import Section


class DecodeSettings(Section):
    """How a record becomes a row. The field ``format`` of each kind holds its name in the registry."""

    format: str

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What the executors must know, complete without any file of this machine."""

    @abstractmethod
    def field_types(self) -> dict[str, str]:
        """The Arrow type, as text, of each top-level field that may be a key or an event time."""

    @abstractmethod
    def never_null(self) -> set[str]:
        """The top-level fields that every row has, also a row made of a tombstone."""

    def tombstone_fields(self) -> tuple[str, ...]:
        """The fields that a record without a value has, from its key; empty where such a record is no tombstone."""
        return ()
