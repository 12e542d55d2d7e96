"""The protocol of a schema registry, and of the records that name its schemas."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import pyarrow as pa

from tidemark.connections.lookup import Lookup
from tidemark.providers.registry.framing import RecordPart, Unframed
from tidemark.providers.registry.registered_schema import RegisteredSchema


class Registry(ABC):
    """Asks one registry. ``address`` tells it from others. Its errors are those of ``tidemark.errors``."""

    address: str

    @abstractmethod
    def by_writer(self, writer: str) -> RegisteredSchema:
        """Return the schema that a record names, with all that it refers to; raises ``UnknownSchema``."""

    @abstractmethod
    def by_subject(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, the newest for None; raises ``UnknownSchema``."""


class MessagePlace(StrEnum):
    """The way in which a Protobuf record names its message of the schema."""

    PATH = "path"  # from the top of the file
    NUMBER = "number"  # among the names of all messages


class RegistryKind(ABC):
    """One kind of registry. ``config`` is ``registry`` of an order."""

    message_place: ClassVar[MessagePlace]

    @abstractmethod
    def name(self, config: Mapping[str, Any]) -> str:
        """Return the name under which a manifest stores its schemas."""

    @abstractmethod
    def open(self, config: Mapping[str, Any], lookup: Lookup) -> Registry:
        """Open the registry. Sends no request yet."""

    @abstractmethod
    def unframe(self, batch: pa.RecordBatch, part: RecordPart, *, with_message: bool) -> Unframed:
        """Remove the frames from the keys or values of a batch.

        With ``with_message`` each value of the result begins with the place of its message.
        """
