"""Retires a pipeline that no longer has a file, so that no list shows it, and brings it back."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, IllegalTransition, NotFound
from tidemark.lifecycle.renamed import refuse_renamed
from tidemark.model.manifest import Decision, ManifestState, count_of, listed
from tidemark.operations.sinks import nobody_at_work
from tidemark.text import with_nearest


def retire_pipeline(
    database: ManifestDatabase, pipeline_name: str, files: Sequence[Path], why: str, *, dry_run: bool
) -> Decision:
    """Remove a pipeline from status, page, metrics and notices. Its published output and its history stay.

    ``files`` are the files that the pipeline has, as ``deployed.files_of`` finds them. Raises ``NotFound`` for an
    unknown name, ``ConfigurationError`` for a pipeline with a file, and ``IllegalTransition`` for a retired one and
    while an attempt is alive.
    """
    _refuse_unknown(database, pipeline_name)
    refuse_files(pipeline_name, files)
    with nobody_at_work(database, pipeline_name, why) as open_attempts:
        _refuse_as_it_is(database, pipeline_name, retired=True)
        states = database.manifests.states(pipeline_name)
        done = states.get(ManifestState.DONE, {"manifests": 0})["manifests"]
        undone = [manifest.id for manifest in database.manifests.undone(pipeline_name)]
        lines = [f"{count_of(done, 'manifest')} done: what is published stays where it is"]
        if undone:
            lines.append(
                f"{count_of(len(undone), 'manifest')} not done, which nothing processes any more: {listed(undone)}"
            )
        decision = Decision(tuple(lines), (), dry_run)
        if not dry_run:
            database.attempts.fence_open(open_attempts, "the pipeline was retired")
            database.pipelines.retire(pipeline_name, retired=True)
            database.decisions.note(pipeline_name, "retire", decision)
    return decision


def refuse_files(pipeline_name: str, files: Sequence[Path]) -> None:
    """Raise ``ConfigurationError`` if a pipeline or a group has a file: it would be planned again."""
    if files:
        raise ConfigurationError(
            f"the pipeline has a file: {listed([str(file) for file in files])}",
            next_step=f"if nobody needs it any more: rm {shlex.join(map(str, files))}; then repeat the command",
            pipeline=pipeline_name,
        )


def bring_back_pipeline(database: ManifestDatabase, pipeline_name: str, why: str, *, dry_run: bool) -> Decision:
    """Undo a retirement: with its file, the pipeline goes on where it ended.

    Raises ``NotFound`` for an unknown name, and ``IllegalTransition`` for a pipeline that is not retired.
    """
    _refuse_unknown(database, pipeline_name)
    with database.because(why):
        _refuse_as_it_is(database, pipeline_name, retired=False)
        decision = Decision(("with its file the pipeline goes on where its last run ended",), (), dry_run)
        if not dry_run:
            database.pipelines.retire(pipeline_name, retired=False)
            database.decisions.note(pipeline_name, "bring-back", decision)
    return decision


def _refuse_unknown(database: ManifestDatabase, pipeline_name: str) -> None:
    refuse_renamed(pipeline_name, database)
    known = database.pipelines.names(retired=True)
    if pipeline_name not in known:
        raise NotFound(
            with_nearest(f"no pipeline {pipeline_name} was ever planned", pipeline_name, known),
            next_step="tidemark status lists those that were; one that was not has nothing to retire",
        )


def _refuse_as_it_is(database: ManifestDatabase, pipeline_name: str, *, retired: bool) -> None:
    since = database.pipelines.retired_at(pipeline_name)
    if (since is not None) == retired:
        raise IllegalTransition(
            f"the pipeline was retired on {since:%Y-%m-%d}" if since else "the pipeline is not retired",
            next_step="nothing to do here",
            pipeline=pipeline_name,
        )
