"""Replays manifests one after the other. A failed manifest does not stop the others."""

from collections.abc import Callable, Mapping, Sequence

from tidemark.errors import TidemarkError, TopicChanged, Unavailable, about
from tidemark.lifecycle.attempt import Stage, process, reading_again
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.failed_tasks import watched_process
from tidemark.lifecycle.select import refuse_at_work
from tidemark.lifecycle.work import Progress
from tidemark.model.manifest import Manifest
from tidemark.model.problem import Problem


def replay_each(
    context: Context,
    manifests: Sequence[Manifest],
    stage: Stage,
    progress: Progress,
    done: Callable[[Manifest], None],
    *,
    dry_run: bool,
) -> tuple[dict[int, TidemarkError], tuple[int, ...]]:
    """Publish each manifest once more to the sinks of the context. Then call ``done`` with the manifest as it was
    before.

    Return the error of each manifest that failed, and the ids of those that were not tried because the source or a sink
    did not answer. A dry run only checks that each one can be read.
    """
    failed: dict[int, TidemarkError] = {}
    for number, manifest in enumerate(manifests, 1):
        try:
            with about(pipeline=context.pipeline_name):
                if dry_run:
                    _refuse_unreadable(context, manifest)
                else:
                    refuse_at_work(context.database.manifests.find(ids=[manifest.id]))
                    progress.begins(manifest, number, len(manifests))
                    with watched_process(context.database.reopened, context.pipeline_name, manifest.id):
                        outcome = process(context, manifest.id, stage, replay=True)
                    progress.ended(outcome)
                done(manifest)
        except TidemarkError as error:
            failed[manifest.id] = error
            if isinstance(error, Unavailable) and "offsets" not in error.context:  # the others would wait for it too
                return failed, tuple(later.id for later in manifests[number:])
    return failed, ()


def problems_of(errors: Mapping[int, TidemarkError]) -> tuple[Problem, ...]:
    """Return a problem for each manifest that cannot be replayed, with its reason."""
    return tuple(Problem(manifest_id, error.what, error.next_step) for manifest_id, error in errors.items())


def _refuse_unreadable(context: Context, manifest: Manifest) -> None:
    """Raise what can be known before reading: that the log generation has ended, or that offsets are lost."""
    if manifest.retired:
        raise TopicChanged(
            "the manifest was planned on a chain that has ended: its records cannot be read again",
            next_step="what is published of it stays",
            manifest=manifest.id,
        )
    with reading_again(manifest):
        context.source.check(manifest.id, manifest.ranges, before_reading=True)
