"""Renames a sink, or gives it up. The manifest database knows every sink that a pipeline ever had.

A renaming has three steps. You may repeat it if it died between any two of them:

1. One transaction fences every attempt that has not ended, and gives the sink, its publications and its receipts the
   new name. ``renamed_from`` says that the target still has the old one. From here on every other command is refused.
2. The target takes the new name, if it names the sink at all.
3. ``renamed_from`` is cleared.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotFound
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.ownership import refuse_foreign, take_over
from tidemark.lifecycle.renamed import refuse_renamed
from tidemark.lifecycle.select import refuse_at_work
from tidemark.model.manifest import Decision, KnownSink, count_of, listed
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.base import Sink


def rename_sink(context: Context, old: str, new: str, why: str, *, dry_run: bool) -> Decision:
    """Go on with a sink under its new name in the pipeline file.

    Raises ``NotFound`` for an unknown name, ``ConfigurationError`` if the file names another target, and
    ``IllegalTransition`` while an attempt is alive.
    """
    database, pipeline_name = context.database, context.pipeline_name
    sink = sink_of_file(context, new, f"write name: {new} at sink {old} in the pipeline file, then repeat the command")
    if sink.ledger.owner():  # also checks that the target answers, before anything changes
        refuse_foreign(sink, database.id())
    with nobody_at_work(database, pipeline_name, why) as open_attempts:
        known = {known.name: known for known in database.sinks.known(pipeline_name)}
        begun = new in known and known[new].renamed_from == old
        if not begun:
            _refuse_renaming(known, sink, old)
        published = len(database.publications.in_sink(pipeline_name, new if begun else old))
        line = f"sink {old} is {new} from here on: {published:,} published manifests, and what {sink.target} names"
        decision = Decision((line,), (), dry_run)
        if dry_run:
            return decision
        if sink.ledger.owner():
            sink.staging.claim(database.id())
        if not begun:
            database.attempts.fence_open(open_attempts, f"sink {old} was renamed {new}")
            before, after = _pipeline_with_name(context, new, old), context.pipeline
            fingerprints = dict(zip(before.earlier_fingerprints(), after.earlier_fingerprints(), strict=True))
            database.sinks.rename(pipeline_name, old, new, fingerprints)
        database.decisions.note(pipeline_name, "rename-sink", decision)
    take_over(sink, pipeline_name, old)
    with database.because(why):
        database.sinks.end_rename(pipeline_name, new)
    return decision


def retire_sink(context: Context, name: str, why: str, *, dry_run: bool) -> Decision:
    """Give up a sink that is no longer in the pipeline file: its publications no longer count.

    Its output stays where it is. Raises ``NotFound`` for an unknown name, ``ConfigurationError`` for a sink of the
    file, and ``IllegalTransition`` while an attempt is alive.
    """
    database, pipeline_name = context.database, context.pipeline_name
    if name in context.sink_names():
        raise ConfigurationError(
            f"sink {name} is in the pipeline file",
            next_step=f"take it out of the file first; then: tidemark retire sink {pipeline_name} {name} --why TEXT",
            sink=name,
        )
    with nobody_at_work(database, pipeline_name, why) as open_attempts:
        known = {sink.name: sink for sink in database.sinks.known(pipeline_name)}
        sink = _current_sink(known, name)
        published = database.publications.in_sink(pipeline_name, name)
        alone = [manifest_id for manifest_id, is_alone in published.items() if is_alone]
        lines = [
            f"sink {name}: {len(published):,} published manifests do not count any more",
            f"{sink.target}: the output stays there, nobody removes it, and readers that list it still see it",
            f"{sink.target} can be used again by a sink of another name",
        ]
        if alone:
            lines.append(f"{count_of(len(alone), 'manifest')} published nowhere else: {listed(alone)}")
        decision = Decision(tuple(lines), (), dry_run)
        if not dry_run:
            database.attempts.fence_open(open_attempts, f"sink {name} was retired")
            database.hours.lock(pipeline_name)
            database.publications.retire_sink(pipeline_name, name)
            database.decisions.note(pipeline_name, "retire-sink", decision)
    return decision


def sink_of_file(context: Context, name: str, next_step: str) -> Sink:
    """Return a sink of the pipeline file by its name. Raises ``NotFound``, with the names that exist."""
    for sink in context.sinks:
        if sink.name == name:
            return sink
    raise NotFound(
        f"the pipeline file has no sink {name}; it has: {', '.join(context.sink_names())}", next_step=next_step
    )


@contextmanager
def nobody_at_work(database: ManifestDatabase, pipeline_name: str, why: str) -> Iterator[list[int]]:
    """Open a transaction in which nobody plans and no attempt starts or publishes.

    Yield the ids of manifests whose attempt has not ended. Raises ``IllegalTransition`` if the process of one is alive.
    """
    with database.because(why):
        database.runs.lock_planning(pipeline_name)
        refuse_renamed(pipeline_name, database)
        database.manifests.lock(pipeline_name)
        open_attempts = database.attempts.manifests_with_open(pipeline_name)
        refuse_at_work(database.manifests.find(ids=open_attempts))
        yield open_attempts


def _current_sink(known: dict[str, KnownSink], name: str) -> KnownSink:
    current = [sink.name for sink in known.values() if sink.is_current]
    if name not in current:
        raise NotFound(
            f"the database knows no sink {name} of this pipeline; it knows: {', '.join(current) or 'none'}",
            next_step="name a known one; nothing was changed",
        )
    return known[name]


def _refuse_renaming(known: dict[str, KnownSink], sink: Sink, old: str) -> None:
    before = _current_sink(known, old)
    if sink.name in known:
        retired = " and retired: a name is never used twice" if known[sink.name].retired_at else ""
        raise ConfigurationError(
            f"sink {sink.name} is known already{retired}",
            next_step=f"give sink {old} a name that is new; nothing was changed",
            sink=sink.name,
        )
    if before.target != sink.target:
        raise ConfigurationError(
            f"sink {sink.name} has another target ({sink.target}) than sink {old} ({before.target})",
            next_step=f"nothing was changed. Only the name may change: give {sink.name} the target {before.target}",
            sink=sink.name,
        )


def _pipeline_with_name(context: Context, name: str, before: str) -> Pipeline:
    """Return the pipeline as it was when sink ``name`` was called ``before``."""
    sinks = [
        settings.model_copy(update={"name": before}) if settings.name == name else settings
        for settings in context.pipeline.sinks
    ]
    return context.pipeline.model_copy(update={"sinks": tuple(sinks)})
