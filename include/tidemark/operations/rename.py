"""Renames a pipeline. All that belongs to it goes on: manifests, chains, hours, sinks, and its name in the targets.

A renaming has three steps. You may repeat it if it died at any point:

1. One transaction fences every attempt that has not ended, and gives each row of the database the new name. It keeps
   the old one as a former name, with ``in_targets``: the targets still have it. From here on every other command is
   refused, by the new name until the end and by the old one for ever.
2. Each target takes the new name, if it names the pipeline at all.
3. ``in_targets`` is cleared.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, IllegalTransition, NotFound
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.known_sinks import refuse_unlike
from tidemark.lifecycle.ownership import refuse_foreign, take_over
from tidemark.lifecycle.renamed import refuse_renamed
from tidemark.lifecycle.select import refuse_at_work
from tidemark.model.manifest import Decision, count_of, listed
from tidemark.sinks.base import Sink
from tidemark.text import with_nearest


def refuse_files(old: str, files: Sequence[Path]) -> None:
    """Raise ``ConfigurationError`` if a pipeline has files under its old name; ``deployed.files_of`` finds them."""
    if files:
        raise ConfigurationError(
            f"the pipeline has a file under its old name: {listed([str(file) for file in files])}",
            next_step="write the new name into the file, and stop what still works by the old one; when only what "
            f"Airflow has kept is left: rm {shlex.join(map(str, files))}; then repeat the command",
            pipeline=old,
        )


def rename_pipeline(context: Context, old: str, why: str, *, dry_run: bool) -> Decision:
    """Go on with pipeline ``old`` under the name that its file has now, which is the name in ``context``.

    The caller has checked with ``refuse_files`` that no file has the old name. Raises ``ConfigurationError`` for a new
    name that is known, and for sinks with other names or targets. Raises ``NotFound`` for an unknown name, and
    ``IllegalTransition`` for a retired pipeline and while an attempt is alive. If the renaming is done already, only
    the targets are checked again.
    """
    database, new = context.database, context.pipeline_name
    with database.because(why):
        for name in sorted({old, new}):
            database.runs.lock_planning(name)
        begun = [row for row in database.pipelines.former_names(old) if (row["name"], row["pipeline"]) == (old, new)]
        if not begun:
            _refuse_renaming(context, old)
        known = {sink.name for sink in database.sinks.known(new if begun else old) if sink.is_current}
        sinks = [sink for sink in context.sinks if sink.name in known]
        for sink in sinks:  # this also checks that each target answers, before anything changes
            if sink.ledger.owner():
                refuse_foreign(sink, database.id())
        decision = Decision(tuple(_lines(database, old, new, sinks, begun=bool(begun))), (), dry_run)
        if dry_run:
            return decision
        for sink in sinks:
            if sink.ledger.owner():
                sink.staging.claim(database.id())
        if not begun:
            _rename_in_database(database, old, new)
            database.decisions.note(new, "rename", decision)
            failpoint("rename.before_commit")
    failpoint("rename.after_commit")
    for sink in sinks:
        take_over(sink, old, sink.name)
        failpoint("rename.in_target")
    failpoint("rename.before_end")
    with database.because(why):
        database.pipelines.end_rename(new)
    return decision


def _rename_in_database(database: ManifestDatabase, old: str, new: str) -> None:
    database.manifests.lock(old)
    open_attempts = database.attempts.manifests_with_open(old)
    refuse_at_work(database.manifests.find(ids=open_attempts))
    database.attempts.fence_open(open_attempts, f"the pipeline was renamed {new}")
    database.hours.lock(old)  # nobody closes an hour while its row is copied
    database.pipelines.rename(old, new)


def _lines(database: ManifestDatabase, old: str, new: str, sinks: Sequence[Sink], *, begun: bool) -> list[str]:
    if begun:
        return [f"pipeline {old} is {new} already; what its targets may still have under the old name gets the new one"]
    count = sum(row["manifests"] for row in database.manifests.states(old).values())
    lines = [f"pipeline {old} is {new} from here on: {count_of(count, 'manifest')}, all runs, hours and history"]
    lines += [f"sink {sink.name}: what {sink.target} says of the pipeline gets the new name" for sink in sinks]
    undone = [manifest.id for manifest in database.manifests.undone(old)]
    if undone:
        lines.append(f"{count_of(len(undone), 'manifest')} not done: {listed(undone)}; then: tidemark retry {new}")
    folders = database.sinks.folders(database.chains.topics(old))
    for name in sorted({row["pipeline"] for row in folders if old in row["shared_with"]} - {old}):
        lines.append(f"the file of pipeline {name} says shared_with: {old}; write {new} there")
    return lines


def _refuse_renaming(context: Context, old: str) -> None:
    database, new = context.database, context.pipeline_name
    known = database.pipelines.names(retired=True)
    refuse_renamed(old, database)
    if old not in known:
        raise NotFound(
            with_nearest(f"no pipeline {old} was ever planned", old, known),
            next_step="a pipeline that was never planned needs only the new name in its file; nothing was changed",
        )
    since = database.pipelines.retired_at(old)
    if since:
        raise IllegalTransition(
            f"the pipeline was retired on {since:%Y-%m-%d}",
            next_step=f"bring it back first: tidemark retire pipeline {old} --undo --why TEXT",
            pipeline=old,
        )
    had = {row["name"] for row in database.pipelines.former_names(old)}
    if new in known or (database.pipelines.former_names(new) and new not in had):
        raise ConfigurationError(
            f"the name {new} is known already: a name is never used twice",
            next_step=f"write a new name into the file of {old}; nothing was changed",
            pipeline=old,
        )
    sinks = database.sinks.known(old)
    refuse_unlike(context.pipeline.model_copy(update={"name": old}), sinks)
    for sink in sinks:
        if sink.is_current and sink.name not in context.sink_names():
            raise ConfigurationError(
                f"sink {sink.name} ({sink.target}) is known, but missing in the file of {new}",
                next_step=f"put it back; or set the name back, then: tidemark retire sink {old} {sink.name} --why TEXT",
                pipeline=old,
                sink=sink.name,
            )
    refuse_at_work(database.manifests.find(ids=database.attempts.manifests_with_open(old)))
