"""The schema registry of a pipeline: it answers, and its schemas of the rows fit event time and sinks."""

from collections.abc import Iterator

from tidemark.connections.lookup import Lookup
from tidemark.doctor.checks import TIMEOUT_S, Check
from tidemark.model.findings import Finding, ok
from tidemark.pipeline.pinned import pinned
from tidemark.pipeline.settings import Pipeline


def checks(pipeline: Pipeline, lookup: Lookup) -> list[Check]:
    if pipeline.uses_registry():
        name = f"{pipeline.name}: schema registry"
        return [Check(name, lambda: findings(name, pipeline, lookup), 4 * TIMEOUT_S, pipeline_name=pipeline.name)]
    return []


def findings(name: str, pipeline: Pipeline, lookup: Lookup) -> Iterator[Finding]:
    checked = pinned(pipeline, lookup, {})
    if checked.decode.uses_registry():
        columns = checked.decode.columns() or {}
        yield ok(name, f"it answers, and the schema of the rows has the columns {', '.join(columns)}")
    for sink in checked.sinks:
        if sink.uses_registry():
            yield ok(name, f"it answers, and the rows fit the schema of sink {sink.name}")
