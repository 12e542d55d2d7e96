"""The schemas that an attempt uses: pinned ones, and, for new ones, those of the registry.

A process fetches each schema once, not once for each record. The task's report says which schemas were used. They are
stored with the receipt, and a replay pins them, so a replay does not ask which version is the newest.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.errors import WorkFailed
from tidemark.providers.registry.base import Registry
from tidemark.providers.registry.client import RegistryClient
from tidemark.providers.registry.kind import kind_of
from tidemark.providers.registry.registered_schema import RegisteredSchema, UnknownSchema

MOST_UNKNOWN = 1_000  # unknown ids after which a task fails: records of another format look like records with ids

_FETCHED: dict[tuple[str, str], RegisteredSchema] = {}  # by address and writer; what an id means never changes


class Schemas:
    """Schemas of one registry, by writer and by subject.

    ``config`` is ``registry`` of an order; ``pinned`` is what ``used`` returned earlier. The client is opened for the
    first schema that is not pinned; its errors are raised here.
    """

    def __init__(self, config: Mapping[str, Any], pinned: Mapping[str, Any], lookup: Lookup = from_environment) -> None:
        self._config = config
        self._kind = kind_of(config)
        self._name = self._kind.name(config)
        self._pinned = pinned
        self._lookup = lookup
        self._registry: Registry | None = None
        self._used: dict[str, Any] = {}
        self._unknown: set[str] = set()

    @property
    def used(self) -> dict[str, Any]:
        """All schemas returned so far, as values for JSON, by question, such as ``registry: subject orders-value
        newest``."""
        return dict(self._used)

    def writer(self, writer: str) -> RegisteredSchema | None:
        """Return the schema of an id or a GUID; None if the registry has none. Raises if it does not answer."""
        if writer in self._unknown:
            return None
        try:
            return self._schema(f"writer {writer}", lambda registry: _ask_for_writer(registry, writer))
        except UnknownSchema:
            self._unknown.add(writer)
            if len(self._unknown) > MOST_UNKNOWN:
                raise WorkFailed(
                    f"records of one task name more than {MOST_UNKNOWN} schemas that the registry does not have",
                    next_step="check that this topic is written with a schema registry, and with this one: "
                    "tidemark peek {pipeline} shows records",
                ) from None
            return None

    def subject(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, or the newest; raises ``UnknownSchema``."""
        key = f"subject {subject} {version or 'newest'}"
        return self._schema(key, lambda registry: registry.by_subject(subject, version))

    def written(self, subject: str, kind: str, text: str, *, register: bool) -> RegisteredSchema:
        """Return a schema with its id for a subject.

        Raises ``UnknownSchema`` if it has no id and ``register`` is false.
        """

        def fetch(registry: Registry) -> RegisteredSchema:
            assert isinstance(registry, RegistryClient), "sinks write with Confluent's framing"
            return RegisteredSchema(registry.id_of(subject, kind, text, register=register), kind, text)

        return self._schema(f"written {subject} {sha256(text.encode()).hexdigest()[:16]}", fetch)

    def _schema(self, question: str, fetch: Callable[[Registry], RegisteredSchema]) -> RegisteredSchema:
        key = f"{self._name}: {question}"
        if key not in self._used:
            raw = self._pinned.get(key)
            if raw is None:
                if self._registry is None:
                    self._registry = self._kind.open(self._config, self._lookup)
                raw = fetch(self._registry).as_dict()
            self._used[key] = raw
        return RegisteredSchema.from_dict(self._used[key])


def _ask_for_writer(registry: Registry, writer: str) -> RegisteredSchema:
    place = (registry.address, writer)
    if place not in _FETCHED:
        _FETCHED[place] = registry.by_writer(writer)
    return _FETCHED[place]
