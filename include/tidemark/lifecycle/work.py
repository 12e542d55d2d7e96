"""Manifests one after the other in this process, as ``run``, ``retry`` and ``replay`` do them without Airflow."""

from collections.abc import Sequence

from tidemark.errors import NotDone, TidemarkError, Unavailable
from tidemark.lifecycle.allowed import NOTHING, Allowed
from tidemark.lifecycle.attempt import Stage, process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.publish import Outcome
from tidemark.manifest import Manifest


class Progress:
    """Is told what happens, and keeps it to itself; whoever wants to show it makes a subclass."""

    def begins(self, manifest: Manifest, number: int, of: int) -> None:
        """The ``number``-th of so many is next."""

    def ended(self, outcome: Outcome) -> None:
        """An attempt got through."""

    def failed(self, error: TidemarkError) -> None:
        """An attempt did not; others follow. The error of a single manifest is raised, and not told here."""

    def left_out(self, manifest: Manifest) -> None:
        """An attempt is at work on it, so nobody else begins."""


def work_through(
    context: Context,
    manifests: Sequence[Manifest],
    stage: Stage,
    progress: Progress,
    *,
    replay: bool = False,
    take_over: bool = False,
    allowed: Allowed = NOTHING,
) -> list[Manifest]:
    """Process each; one that fails does not stop the others, unless an outside system is down: they would all wait.

    When it is one sink of several that is down, the others still get all of it. Returns what it left out, since an
    attempt has begun at it after they were listed.
    """
    errors: list[TidemarkError] = []
    left_out: list[Manifest] = []
    for number, manifest in enumerate(manifests, 1):
        try:
            now = context.database.manifest(manifest.id)
            if now.alive and not take_over:
                progress.left_out(now)
                left_out.append(now)
                continue
            progress.begins(manifest, number, len(manifests))
            progress.ended(process(context, manifest.id, stage, replay=replay, allowed=allowed))
        except TidemarkError as error:
            if len(manifests) > 1:
                progress.failed(error)
            errors.append(error)
            of_one_sink = len(context.sinks) > 1 and "sink" in error.context
            if isinstance(error, Unavailable) and not of_one_sink:
                break
    if errors:
        raise errors[0] if len(manifests) == 1 else _several(context, errors, len(manifests))
    return left_out


def _several(context: Context, errors: list[TidemarkError], of: int) -> TidemarkError:
    return NotDone(
        f"{len(errors)} of {of} manifests failed",
        next_step=f"correct what the messages above name, then: tidemark retry {context.pipeline_name}",
        pipeline=context.pipeline_name,
    )


def refuse_left_out(context: Context, left_out: Sequence[Manifest]) -> None:
    """Raise when a replay has left something out."""
    if left_out:
        commands = [
            f"tidemark replay {context.pipeline_name} --manifest {manifest.id} --take-over" for manifest in left_out
        ]
        raise NotDone(
            f"not everything was replayed: {len(left_out)} left out, where an attempt is at work",
            next_step=f"wait for it, or fence it: {'; '.join(commands)}",
            pipeline=context.pipeline_name,
        )
