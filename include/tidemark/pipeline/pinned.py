"""Fixes what a pipeline file leaves open: the schemas of a registry for the rows of an attempt."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import ValidationError

from tidemark.connections.lookup import Lookup
from tidemark.decoders.pins import Pins
from tidemark.decoders.topic_settings import RecordSettings
from tidemark.errors import ConfigurationError
from tidemark.pipeline.event_time import check_field
from tidemark.pipeline.rows import check_transforms, rows_for_sinks
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.settings import SinkSettings


def pinned(pipeline: Pipeline, lookup: Lookup, stored: Mapping[str, Any], *, register: bool = False) -> Pipeline:
    """Return the pipeline with the schemas of its registry. ``stored`` are those that the manifest was read with
    before. Sinks may add schemas only with ``register``.

    Raises ``ConfigurationError`` if a schema does not exist or does not fit event time and sinks; ``Unavailable`` or
    ``AccessDenied`` if the registry does not give it. A pipeline without a registry is returned unchanged.
    """
    if not pipeline.uses_registry():
        return pipeline
    pins = _pins(pipeline, lookup, stored, register=register)
    decode = pipeline.decode.pinned(pins)
    pipeline = _fitting(pipeline, decode)
    rows = rows_for_sinks(decode, pipeline.transform, pipeline.code)
    sinks = tuple(sink.pinned(rows, pins) for sink in pipeline.sinks) if rows is not None else pipeline.sinks
    return pipeline.model_copy(update={"decode": decode, "sinks": sinks})


def with_record_key(pipeline: Pipeline, lookup: Lookup) -> Pipeline:
    """Return the pipeline; its sinks with ``key: record_key`` have the columns of the registry's newest schema. Raises
    as ``pinned`` does.
    """
    return _fitting(pipeline, pipeline.decode.pinned(_pins(pipeline, lookup, {})))


def _pins(pipeline: Pipeline, lookup: Lookup, stored: Mapping[str, Any], *, register: bool = False) -> Pins:
    topics = pipeline.source.topics if pipeline.source.rule is None else ()
    return Pins(topics, stored, lookup, register=register)


def _fitting(pipeline: Pipeline, decode: RecordSettings) -> Pipeline:
    """Return the pipeline with the columns of the record's key. Raises ``ConfigurationError`` if it does not fit a
    pinned ``decode``.
    """
    columns = decode.record_key() or ()
    sinks = tuple(_with_record_key(pipeline.name, sink, columns) for sink in pipeline.sinks)
    fitting = pipeline.model_copy(update={"sinks": sinks})
    problem = _problem_with(fitting, decode)
    if problem is not None:
        raise ConfigurationError(
            f"the pipeline does not fit the schema of the registry: {problem}",
            next_step="correct the pipeline file, or name another version: schema: {subject: NAME, version: NUMBER}; "
            f"then: tidemark doctor {pipeline.name}",
            pipeline=pipeline.name,
        )
    return fitting


def _with_record_key(pipeline_name: str, sink: SinkSettings, columns: tuple[str, ...]) -> SinkSettings:
    known = sink.record_key
    if known and {*known} != {*columns}:
        raise ConfigurationError(
            f"sink {sink.name} has one row for each {', '.join(known)}, which was the record's key when the sink was "
            f"first planned; now the key's schema has {', '.join(columns)}",
            next_step=f"to go on with the former key, where it still names a row, write key: [{', '.join(known)}] in "
            f"place of record_key; else give a sink with the new key a name and a table of its own, which tidemark "
            f"fill {pipeline_name} NAME --why TEXT then fills",
            pipeline=pipeline_name,
            sink=sink.name,
        )
    return sink if known else sink.with_record_key(columns)


def _problem_with(pipeline: Pipeline, decode: RecordSettings) -> str | None:
    """Return the words of ``tidemark validate`` if the pipeline file does not fit the columns, else None."""
    if problem := decode.problem_with_columns():
        return f"decode {problem}"
    try:
        check_transforms(pipeline.transform, decode, pipeline.code)
        rows = rows_for_sinks(decode, pipeline.transform, pipeline.code)
        if rows is not None:
            check_field(pipeline.event_time, rows)
    except ValidationError as invalid:
        [first, *_] = invalid.errors()
        return f"{'.'.join(map(str, first['loc']))} {first['msg']}"
    if rows is None:
        return None
    columns = rows.arrow_schema()
    problems = [(sink.name, sink.problem_with_rows(rows, columns)) for sink in pipeline.sinks]
    return next((f"sink {name} {problem}" for name, problem in problems if problem is not None), None)
