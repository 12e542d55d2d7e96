"""The target of every sink: it answers, belongs to this database, and can be written. The trial write is undone."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tidemark.connections.lookup import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.doctor.checks import TIMEOUT_S, Check
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.lifecycle.known_sinks import refuse_unlike
from tidemark.lifecycle.ownership import refuse_foreign
from tidemark.lifecycle.preflight import refuse_nested, refuse_other_name, refuse_vanished, refuse_went_back
from tidemark.model.findings import Finding, ok, warning
from tidemark.pipeline.pinned import pinned
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.registry import open_sink
from tidemark.sinks.settings import SinkSettings


def checks(environment: Environment, pipeline: Pipeline, lookup: Lookup) -> list[Check]:
    targets = []
    for settings in pipeline.sinks:
        name = f"{pipeline.name}: sink {settings.name}"
        ask = partial(target, name, environment, pipeline, settings, lookup)
        targets.append(Check(name, ask, 2 * TIMEOUT_S, pipeline_name=pipeline.name))
    return targets


def target(
    name: str, environment: Environment, pipeline: Pipeline, settings: SinkSettings, lookup: Lookup
) -> Iterator[Finding]:
    yield ok(name, settings.target)
    checked = pinned(pipeline, lookup, {})
    [record_key] = [each.record_key for each in checked.sinks if each.name == settings.name]
    sink = open_sink(pipeline.name, settings.with_record_key(record_key or ()), lookup)
    owner = sink.ledger.owner()
    for finding in sink.output.rehearse(checked.decode.record_order(), pipeline.transforms()):
        yield replace(finding, check=name)
    try:
        database = ManifestDatabase(environment.database(), "doctor")
    except TidemarkError:
        yield warning(
            name,
            "its owner was not checked",
            f"correct what the check of the manifest database reports, then: tidemark doctor {pipeline.name}",
        )
        return
    with database:
        refuse_unlike(pipeline.model_copy(update={"sinks": (settings,)}), database.sinks.known(pipeline.name))
        refuse_vanished(database, sink)
        refuse_nested(database, sink)
        if owner is not None:
            refuse_foreign(sink, database.id())
            refuse_other_name(database, sink, dry_run=True)
            refuse_went_back(database, sink)
    yield ok(name, "it belongs to this manifest database" if owner else "it has no owner yet; the first plan claims it")
