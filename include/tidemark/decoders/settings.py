"""The keys of ``decode`` in a pipeline file that every format shares."""

from abc import abstractmethod
from typing import Any

from tidemark.config.base import Section


class DecodeSettings(Section):
    """How a record becomes a row. The field ``format`` of each kind holds its name in the registry."""

    format: str

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What the executors need, without any reference to a file of this machine."""

    @abstractmethod
    def field_types(self) -> dict[str, str]:
        """The Arrow type, as text, of each top-level field that may be a key or an event time."""

    @abstractmethod
    def never_null(self) -> set[str]:
        """The top-level fields that have a value in every row, also in a row made from a tombstone."""

    def tombstone_fields(self) -> tuple[str, ...]:
        """The fields that a tombstone has, from its key; empty when a record without a value is not a tombstone."""
        return ()
