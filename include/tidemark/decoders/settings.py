"""The keys of ``decode`` in a pipeline file that every format shares."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from tidemark.config.base import Section

if TYPE_CHECKING:
    import pyarrow as pa


class RowSettings(Protocol):
    """What a pipeline file says of the rows that event time and sinks get."""

    @property
    def format(self) -> str: ...

    def field_types(self) -> dict[str, str]:
        """The Arrow type, as text, of each top-level field that may be a key or an event time."""
        ...

    def never_null(self) -> set[str]:
        """The top-level fields that have a value in every row, also in a row made from a tombstone."""
        ...

    def tombstone_fields(self) -> tuple[str, ...]:
        """The fields that a tombstone has; empty when a record without a value is not a tombstone."""
        ...

    def arrow_schema(self) -> "pa.Schema":
        """The data columns, as a sink's writer gets them."""
        ...


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

    def arrow_schema(self) -> "pa.Schema":
        """The columns that the decoder makes."""
        from tidemark.decoders.registry import open_decoder  # needs pyarrow, which most checks do without

        return open_decoder(self.order()).schema
