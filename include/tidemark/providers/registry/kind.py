"""Finds the kind of a registry: Confluent's, or one that a provider brings."""

from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa

from tidemark.connections.lookup import Lookup
from tidemark.kinds import REGISTRIES
from tidemark.providers.registry.base import MessagePlace, Registry, RegistryKind
from tidemark.providers.registry.client import open_registry
from tidemark.providers.registry.framing import RecordPart, Unframed, unframe


class Confluent(RegistryKind):
    """Registries with Confluent's API."""

    message_place = MessagePlace.PATH

    def name(self, config: Mapping[str, Any]) -> str:
        return str(config.get("connection") or config["url"])

    def open(self, config: Mapping[str, Any], lookup: Lookup) -> Registry:
        return open_registry(config, lookup)

    def unframe(self, batch: pa.RecordBatch, part: RecordPart, *, with_message: bool) -> Unframed:
        return unframe(batch, part, with_message=with_message)


def kind_of(config: Mapping[str, Any]) -> RegistryKind:
    """Return the kind of the registry of an order, which names it unless it is Confluent's."""
    if "kind" not in config:
        return Confluent()
    return cast("RegistryKind", REGISTRIES.module(config["kind"], "registry").open_kind())
