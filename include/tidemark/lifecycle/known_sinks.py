"""Compares the sinks of a pipeline file with those that the database knows by name and target.

If a sink just got another name, its output would belong to no sink: an audit would call it leftovers, and a replay
would write the same records a second time.
"""

from collections.abc import Sequence

from tidemark.connections.lookup import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError
from tidemark.model.manifest import KnownSink, count_of, listed
from tidemark.model.verdict import NextStep, command
from tidemark.pipeline.pinned import with_record_key
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.settings import SinkSettings


def know_sinks(pipeline: Pipeline, database: ManifestDatabase) -> None:
    """Store the sinks of the pipeline file that the database does not know yet; raises as ``refuse_unlike``."""
    known = database.sinks.known(pipeline.name)
    refuse_unlike(pipeline, known)
    names = {sink.name for sink in known}
    if {sink.name for sink in pipeline.sinks} - names:
        with database.transaction():
            remember_sinks(pipeline, database)


def remember_sinks(pipeline: Pipeline, database: ManifestDatabase) -> None:
    """Store the pipeline and those of its sinks that are not known yet; needs an open transaction."""
    targets = {sink.name: sink.target for sink in pipeline.sinks}
    database.pipelines.remember(pipeline.name, targets, {sink.name: sink.row_order() for sink in pipeline.sinks})
    for sink in pipeline.sinks:
        if sink.record_key:
            database.sinks.pin_record_key(pipeline.name, sink.name, sink.record_key)


def with_known_keys(pipeline: Pipeline, database: ManifestDatabase, lookup: Lookup) -> Pipeline:
    """Return the pipeline with the key columns of its sinks with ``key: record_key``: those that the first plan has
    stored, or those that a registry has now. Raises as ``pinned`` if a registry is asked."""
    if all(sink.record_key != () for sink in pipeline.sinks):
        return pipeline
    known = {sink.name: tuple(sink.record_key) for sink in database.sinks.known(pipeline.name) if sink.record_key}
    sinks = tuple(
        sink.with_record_key(known[sink.name]) if sink.record_key == () and sink.name in known else sink
        for sink in pipeline.sinks
    )
    pipeline = pipeline.model_copy(update={"sinks": sinks})
    return with_record_key(pipeline, lookup) if any(sink.record_key == () for sink in sinks) else pipeline


def not_in_file(pipeline: Pipeline, database: ManifestDatabase) -> list[str]:
    """Return a line for each known sink that the pipeline file does not have."""
    in_file = {sink.name for sink in pipeline.sinks}
    return [
        f"sink {sink.name} ({sink.target}) is known and not in the pipeline file: what is published there stays; "
        f"put it back, or: tidemark retire sink {pipeline.name} {sink.name} --why TEXT"
        for sink in database.sinks.known(pipeline.name)
        if sink.is_current and sink.name not in in_file
    ]


def is_not_filled(pipeline_name: str, sink_name: str, manifests: Sequence[int]) -> tuple[str, str]:
    """Return the problem of a sink that lacks these done manifests, and the next step."""
    return (
        f"sink {sink_name} is not filled: it lacks {count_of(len(manifests), 'done manifest')} ({listed(manifests)})",
        command(NextStep.FILL, pipeline_name, None, sink_name),
    )


def refuse_unlike(pipeline: Pipeline, sinks: Sequence[KnownSink]) -> None:
    """Raise ``ConfigurationError`` unless each sink of the file is known with the same target, or is new."""
    known = {sink.name: sink for sink in sinks}
    current = [sink for sink in sinks if sink.is_current]
    for sink in current:
        if sink.renamed_from is not None:
            raise ConfigurationError(
                f"sink {sink.name} is being renamed from {sink.renamed_from}, and its target still has the old name",
                next_step=f"end it: tidemark rename sink {pipeline.name} {sink.renamed_from} {sink.name} --why TEXT",
                pipeline=pipeline.name,
                sink=sink.name,
            )
    for settings in pipeline.sinks:
        for sink in current if settings.name not in known else ():
            _refuse_known_target(pipeline, settings, sink)
    for settings in pipeline.sinks:
        before = known.get(settings.name)
        if before is not None and _is_changed(before, settings):
            raise _changed(pipeline, settings, before)


def _refuse_known_target(pipeline: Pipeline, settings: SinkSettings, sink: KnownSink) -> None:
    if sink.target == settings.target:
        raise ConfigurationError(
            f"sink {settings.name} writes to {sink.target}, which is known as sink {sink.name}",
            next_step=f"if that is its new name: tidemark rename sink {pipeline.name} {sink.name} {settings.name} "
            f"--why TEXT; else set the name back to {sink.name}",
            pipeline=pipeline.name,
            sink=settings.name,
        )
    if settings.meets_target(sink.target):
        raise ConfigurationError(
            f"the targets of two sinks overlap: {settings.name} would write to {settings.target}, and {sink.name} is "
            f"known to write to {sink.target}",
            next_step=f"give {settings.name} a target of its own; or take {sink.name} out of the pipeline file and "
            f"give it up: tidemark retire sink {pipeline.name} {sink.name} --why TEXT",
            pipeline=pipeline.name,
            sink=settings.name,
        )


def _is_changed(known: KnownSink, settings: SinkSettings) -> bool:
    return known.retired_at is not None or (known.target, known.row_order) != (settings.target, settings.row_order())


def _changed(pipeline: Pipeline, settings: SinkSettings, known: KnownSink) -> ConfigurationError:
    """Return the error for a sink that was retired, or has another target than before, or another order of rows."""
    if known.retired_at is not None:
        return ConfigurationError(
            f"the pipeline file names sink {known.name}, which was retired on {known.retired_at:%Y-%m-%d}: what was "
            "published under this name no longer counts",
            next_step=f"give the sink another name; then: tidemark fill {pipeline.name} NAME --why TEXT",
            pipeline=pipeline.name,
            sink=known.name,
        )
    if known.target != settings.target:
        return ConfigurationError(
            f"sink {known.name} was planned into {known.target}, the pipeline file now says {settings.target}",
            next_step="set it back (relative roots start at TIDEMARK_HOME); or give the sink at the new target a name "
            f"of its own, which tidemark fill {pipeline.name} NAME --why TEXT then fills",
            pipeline=pipeline.name,
            sink=known.name,
        )
    before, now = (f"by {name}" if name else "by their offsets" for name in (known.row_order, settings.row_order()))
    return ConfigurationError(
        f"sink {known.name} has ordered the rows of a key {before}, the pipeline file now orders them {now}: older "
        "rows, which the table no longer has, might be the newest ones by the new order",
        next_step="set order_by back; or give a sink with the other order a name and a table of its own, which "
        f"tidemark fill {pipeline.name} NAME --why TEXT then fills",
        pipeline=pipeline.name,
        sink=known.name,
    )
