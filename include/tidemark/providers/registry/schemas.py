"""The schemas that an attempt works with: pinned ones first, the registry for what is new.

A schema is fetched once per process and never once per record. What was used is told in the task's report, is stored
with the receipt, and is pinned by a replay, so a replay does not ask which version is the newest.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.errors import WorkFailed
from tidemark.providers.registry.client import RegistryClient, open_registry
from tidemark.providers.registry.registered_schema import RegisteredSchema, UnknownSchema

MOST_UNKNOWN = 1_000  # unknown ids of one task, before it fails: records of another format look like ids

_FETCHED: dict[tuple[str, str], RegisteredSchema] = {}  # by address and writer; what an id means never changes


class Schemas:
    """Schemas of one registry, by writer and by subject.

    ``config`` is ``registry`` of an order, ``pinned`` what ``used`` gave before. The client is opened for the first
    schema that is not pinned; what it and the opening raise is raised here.
    """

    def __init__(self, config: Mapping[str, Any], pinned: Mapping[str, Any], lookup: Lookup = from_environment) -> None:
        self._config = config
        self._name = config.get("connection") or config["url"]
        self._pinned = pinned
        self._lookup = lookup
        self._registry: RegistryClient | None = None
        self._used: dict[str, Any] = {}
        self._unknown: set[str] = set()

    @property
    def used(self) -> dict[str, Any]:
        """All schemas given out, as JSON can hold them, by question: ``registry: subject orders-value newest``."""
        return dict(self._used)

    def writer(self, writer: str) -> RegisteredSchema | None:
        """The schema of an id or a GUID; None when the registry has none. Raises when it does not answer."""
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
        """A version of a subject, or the newest; raises ``UnknownSchema``."""
        key = f"subject {subject} {version or 'newest'}"
        return self._schema(key, lambda registry: registry.by_subject(subject, version))

    def written(self, subject: str, kind: str, text: str, *, register: bool) -> RegisteredSchema:
        """A schema with the id that it has for a subject; raises ``UnknownSchema`` when it has none and shall not
        ``register``."""

        def fetch(registry: RegistryClient) -> RegisteredSchema:
            return RegisteredSchema(registry.id_of(subject, kind, text, register=register), kind, text)

        return self._schema(f"written {subject} {sha256(text.encode()).hexdigest()[:16]}", fetch)

    def _schema(self, question: str, fetch: Callable[[RegistryClient], RegisteredSchema]) -> RegisteredSchema:
        key = f"{self._name}: {question}"
        if key not in self._used:
            raw = self._pinned.get(key)
            if raw is None:
                if self._registry is None:
                    self._registry = open_registry(self._config, self._lookup)
                raw = fetch(self._registry).as_dict()
            self._used[key] = raw
        return RegisteredSchema.from_dict(self._used[key])


def _ask_for_writer(registry: RegistryClient, writer: str) -> RegisteredSchema:
    place = (registry.url, writer)
    if place not in _FETCHED:
        _FETCHED[place] = registry.by_writer(writer)
    return _FETCHED[place]
