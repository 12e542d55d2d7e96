"""What is checked before a pipeline plans or an attempt writes: the sinks' targets, and whether the source still has
the records that were planned."""

from collections.abc import Sequence

from tidemark.database.client import ManifestDatabase
from tidemark.errors import (
    AccessDenied,
    ConfigurationError,
    LakeConflict,
    SinkRefused,
    TidemarkError,
    TopicChanged,
    Unavailable,
    WorkFailed,
)
from tidemark.lifecycle.context import Context
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink, newest

# Manifests whose records are compared at each plan, so that it costs the same after years; an attempt compares its own.
RECENT = 10_000
OF_ONE_SINK = (
    Unavailable,
    AccessDenied,
    SinkRefused,
    WorkFailed,
)  # what may keep one sink from working while the others go on


def check_for_plan(context: Context, *, dry_run: bool) -> list[str]:
    """Claim the targets and compare their records with the database; notes of those that do not answer.

    Raises ``LakeConflict``, and what a target says when not even one of them answers.
    """
    pipeline, database, sinks = context.pipeline_name, context.database, context.sinks
    refuse_moved(pipeline, database, sinks)
    recent = max(0, database.highest_manifest() - RECENT)
    found: list[tuple[Sink, list[RecordName]]] = []
    silent: list[tuple[Sink, TidemarkError]] = []
    for sink in sinks:  # asked before the database, which may grow meanwhile
        try:
            refuse_vanished(pipeline, database, sink)
            if not dry_run:
                sink.claim(database.id())
            found.append((sink, sink.records(own=False, above=recent)))
        except OF_ONE_SINK as error:
            silent.append((sink, error))
    if not found:
        raise silent[0][1]
    last, last_own = database.highest_manifest(), database.highest_manifest(pipeline)
    for sink, names in found:
        own = newest(one for one in names if one.pipeline_name == pipeline)
        sink.refuse_records_beyond(last, names)
        sink.refuse_records_beyond(last_own, own.values())
        attempts = {of: name.attempt for of, name in own.items()}
        for manifest, attempt in database.attempts_forgotten(attempts):
            sink.refuse_attempts_beyond(manifest, attempt, attempts[manifest])
    return [f"sink {sink.name} was not asked what it holds: {error.what}" for sink, error in silent]


def check_for_attempt(pipeline_name: str, database: ManifestDatabase, sink: Sink, manifest_id: int) -> None:
    """Claim one target and refuse it when it knows attempts that the database does not."""
    refuse_vanished(pipeline_name, database, sink)
    sink.claim(database.id())
    recorded = sink.recorded_attempt(manifest_id)  # before asking the database: it may grow meanwhile
    sink.refuse_attempts_beyond(manifest_id, database.newest_attempt(manifest_id), recorded)


def refuse_moved(pipeline_name: str, database: ManifestDatabase, sinks: Sequence[Sink]) -> None:
    """A target that is not where the pipeline was planned into would split its output in two."""
    targets = database.targets(pipeline_name) or {}
    for sink in sinks:
        if targets.get(sink.name, sink.target) != sink.target:
            raise ConfigurationError(
                f"sink {sink.name} was planned into {targets[sink.name]}, the pipeline file now says {sink.target}",
                next_step="set it back (relative roots start at TIDEMARK_HOME), or give the new place a new "
                "pipeline name",
                pipeline=pipeline_name,
            )


def refuse_vanished(pipeline_name: str, database: ManifestDatabase, sink: Sink) -> None:
    """A target that held published output and is empty now: a disk that is not mounted, a database made anew."""
    if sink.owner() is None and database.has_published(pipeline_name, sink.name):
        raise LakeConflict(
            f"{sink.target} is empty, and manifests are published there",
            next_step="nothing was written; is a disk not mounted, or the folder or database another one? "
            "When the output is gone for good: give the pipeline a new name, or bring back a copy",
            pipeline=pipeline_name,
            sink=sink.name,
        )


def refuse_outlived(pipeline_name: str, database: ManifestDatabase, manifest_id: int) -> None:
    """Raise ``TopicChanged`` when a manifest reaches above the end of the life it was planned on, as far as that is
    noticed or accepted: the records there belong to another manifest, or will."""
    outlived = database.outlived(manifest_id)
    if not outlived:
        return
    one = outlived[0]
    place = {"topic": one["topic"], "partition": one["partition"]}
    accept = (
        f"tidemark accept-truncation {pipeline_name} --topic {one['topic']} --partition {one['partition']} --why TEXT"
    )
    raise TopicChanged(
        f"the log it was planned on ended at {one['life_end']}; other records are at its offsets above now",
        next_step=f"nothing of this attempt is published, what was before stays; when that was meant: {accept}"
        if one["noticed"]
        else "what is published of it stays; when a sink lacks it, take that sink out of the pipeline file, end the "
        f"manifest with tidemark retry {pipeline_name}, and put the sink back",
        pipeline=pipeline_name,
        manifest=manifest_id,
        **place,
        offsets=f"[{one['start_offset']},{one['end_offset']})",
    )
