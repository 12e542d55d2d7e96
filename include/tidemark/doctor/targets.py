"""Every sink's target: reachable, nobody else's, and writable, which is tried and taken back."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tidemark.connections import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.doctor.checks import TIMEOUT_S, Check
from tidemark.environment import Environment
from tidemark.errors import TidemarkError, about
from tidemark.findings import Finding, ok, warning
from tidemark.lifecycle.preflight import refuse_moved, refuse_vanished
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.registry import open_sink
from tidemark.sinks.settings import SinkSettings


def checks(settings: Environment, pipeline: Pipeline, lookup: Lookup) -> list[Check]:
    found = []
    for one in pipeline.sinks:
        name = f"{pipeline.name}: sink {one.name}"
        found.append(Check(name, partial(target, name, settings, pipeline, one, lookup), 2 * TIMEOUT_S))
    return found


def target(
    name: str, settings: Environment, pipeline: Pipeline, config: SinkSettings, lookup: Lookup
) -> Iterator[Finding]:
    with about(pipeline=pipeline.name):
        yield from _target(name, settings, pipeline, config, lookup)


def _target(
    name: str, settings: Environment, pipeline: Pipeline, config: SinkSettings, lookup: Lookup
) -> Iterator[Finding]:
    sink = open_sink(pipeline.name, config, lookup)
    yield ok(name, sink.target)
    owner = sink.owner()
    for finding in sink.rehearse(pipeline.decode.order()):
        yield replace(finding, check=name)
    try:
        database = ManifestDatabase(settings.database(), "doctor")
    except TidemarkError:
        yield warning(
            name,
            "the owner of the target was not compared",
            "correct what is reported of the manifest database, then run this again",
        )
        return
    with database:
        refuse_moved(pipeline.name, database, [sink])
        refuse_vanished(pipeline.name, database, sink)
        if owner is not None:
            sink.refuse_foreign(database.id())
    yield ok(name, "it is this manifest database's" if owner else "it belongs to nobody; the first plan claims it")
