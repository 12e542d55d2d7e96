"""The limit of the messages of a topic, as an order carries it to Spark."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tidemark.model.storable import RowCheck

NO_LIMIT: Final = 2**31  # bytes; no message is that large


@dataclass(frozen=True)
class MessageLimit:
    """The most bytes of the message of a row, after compression.

    ``key``: the columns that make the key; empty for the record's own key. ``value``: the column that is the value;
    None for all columns, as ``schema`` says, the JSON of a ``RegisteredSchema``, or else as a JSON object. ``keyed``: a
    message must have a key.
    """

    topic: str
    key: Sequence[str]
    value: str | None
    compression: str
    bytes: int = NO_LIMIT
    keyed: bool = False
    schema: str | None = None

    def check(self) -> RowCheck:
        return RowCheck("tidemark.providers.topic.long_messages", {**asdict(self), "key": list(self.key)})
