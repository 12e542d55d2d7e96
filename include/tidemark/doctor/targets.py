"""Every sink's target: reachable, nobody else's, and writable, which is tried and taken back."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from tidemark.connections import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.doctor.finding import TIMEOUT_S, Check, Finding, failed, ok, warning
from tidemark.doctor.machine import existing, room
from tidemark.errors import TidemarkError
from tidemark.lifecycle.preflight import refuse_moved, refuse_vanished
from tidemark.pipeline.settings import Pipeline
from tidemark.settings import Settings
from tidemark.sinks.base import Sink
from tidemark.sinks.files.sink import FilesSink
from tidemark.sinks.postgres.sink import PostgresSink
from tidemark.sinks.registry import open_sink
from tidemark.sinks.settings import SinkConfig
from tidemark.storage.base import ObjectStore


def checks(settings: Settings, pipeline: Pipeline, lookup: Lookup) -> list[Check]:
    found = []
    for one in pipeline.sinks:
        name = f"{pipeline.name}: sink {one.name}"
        found.append(Check(name, partial(target, name, settings, pipeline, one, lookup), 2 * TIMEOUT_S))
    return found


def target(name: str, settings: Settings, pipeline: Pipeline, config: SinkConfig, lookup: Lookup) -> Iterator[Finding]:
    sink = open_sink(pipeline.name, config, lookup)
    yield ok(name, sink.target)
    owner = sink.owner()
    yield from _written(name, pipeline, sink)
    try:
        database = ManifestDatabase(settings.database(), "doctor")
    except TidemarkError:
        yield warning(
            name, "whose it is was not compared", "mend what is said of the manifest database, then ask again"
        )
        return
    with database:
        refuse_moved(pipeline.name, database, [sink])
        refuse_vanished(pipeline.name, database, sink)
        if owner is not None:
            sink.refuse_foreign(database.id())
    yield ok(name, "it is this manifest database's" if owner else "it belongs to nobody; the first plan claims it")


def _written(name: str, pipeline: Pipeline, sink: Sink) -> Iterator[Finding]:
    if isinstance(sink, PostgresSink):
        sink.rehearse(pipeline.decode.order())
        yield ok(name, "table, key and rights are what an attempt needs (tried, and rolled back)")
    if isinstance(sink, FilesSink):
        yield from _probed(name, sink.store) if "://" in sink.root else _folder(name, sink)


def _folder(name: str, sink: FilesSink) -> Iterator[Finding]:
    """A local root that is not there yet is made by the first plan: here only its parent is looked at."""
    root = Path(sink.root)
    if root.is_dir():
        yield from _probed(name, sink.store)
    elif os.access(existing(root), os.W_OK | os.X_OK):
        yield ok(name, f"{root} is not there yet; the first plan makes it")
    else:
        yield failed(name, f"{root} is not there, and cannot be made in {existing(root)}", "give this user the right")
    yield from room(name, root)


def _probed(name: str, store: ObjectStore) -> Iterator[Finding]:
    """Create only when absent, move, remove: what publishing rests on, with a name that readers skip."""
    store.check()
    key = f".doctor-{uuid4().hex}"
    try:
        store.put_if_absent(key, b"probe")
        store.move(key, f"{key}-moved", len(b"probe"))
    finally:
        store.delete([key, f"{key}-moved"])
    yield ok(name, "objects can be created once, moved and removed (tried)")
