"""Brings dead letters back: replays manifests that have some, after you corrected the schema or the code.

A replay puts each record where it belongs, and the dead letters of the published attempt go with its other output. So
this may be killed and repeated: it then goes on with the manifests that still have dead letters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.errors import TidemarkError
from tidemark.lifecycle.attempt import Stage
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.work import Progress
from tidemark.model.json_values import NOT_IN_JSON, in_json
from tidemark.model.manifest import Decision, Manifest, count_of
from tidemark.model.problem import Problem
from tidemark.operations.dead_letters import DeadLetterSelection, dead_letters, with_dead_letters
from tidemark.operations.replays import problems_of, replay_each


@dataclass(frozen=True)
class Returned:
    """A replayed manifest: its number of dead letters before and after; ``remain`` is None in a dry run."""

    manifest_id: int
    before: int
    remain: int | None

    @property
    @in_json
    def brought_back(self) -> int | None:
        """Return the number of dead letters that became rows; below zero if more records cannot be read than before."""
        return None if self.remain is None else self.before - self.remain


@dataclass(frozen=True)
class BroughtBack:
    """The manifests that were replayed, oldest first, and the error of each manifest that could not be replayed.

    ``left`` were not tried, because the source or a sink did not answer.
    """

    dry_run: bool
    returned: tuple[Returned, ...]
    errors: Mapping[int, TidemarkError] = field(metadata=NOT_IN_JSON)
    left: tuple[int, ...]

    @property
    @in_json
    def failed(self) -> tuple[Problem, ...]:
        return problems_of(self.errors)


def bring_back(
    context: Context, selection: DeadLetterSelection, why: str, stage: Stage, progress: Progress, *, dry_run: bool
) -> BroughtBack:
    """Replay each manifest with selected dead letters, oldest first. A failed manifest does not stop the others."""
    database = context.database
    chosen = _chosen(context, selection)
    if chosen and not dry_run:
        with database.because(why):
            letters = sum(map(_count_dead_letters, chosen))
            line = f"replayed: {count_of(len(chosen), 'manifest')} with {count_of(letters, 'dead letter')}"
            decision = Decision((line,), tuple(manifest.id for manifest in chosen))
            database.decisions.note(context.pipeline_name, "replay-dead-letters", decision)

    returned: list[Returned] = []

    def done(manifest: Manifest) -> None:
        remain = None if dry_run else _count_dead_letters(database.manifests.get(manifest.id))
        returned.append(Returned(manifest.id, _count_dead_letters(manifest), remain))

    errors, left = replay_each(context, chosen, stage, progress, done, dry_run=dry_run)
    return BroughtBack(dry_run, tuple(returned), errors, left)


def _chosen(context: Context, selection: DeadLetterSelection) -> list[Manifest]:
    manifests = list(with_dead_letters(context, selection))
    if selection.all_of_a_manifest:
        return manifests
    matching = dead_letters(context, selection).manifests
    return [manifest for manifest in manifests if manifest.id in matching]


def _count_dead_letters(manifest: Manifest) -> int:
    """Return the number of dead letters of a manifest. Every sink has them all; one that a replay has not reached still
    has the old ones.
    """
    return max((published.counts.dead_lettered for published in manifest.publications), default=0)
