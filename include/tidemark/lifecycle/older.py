"""Finds unfinished manifests of earlier runs. A run names them, and processes them unless the pipeline file says
otherwise."""

from collections.abc import Callable, Collection, Sequence

from tidemark.errors import NotPublished
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Manifest, ManifestState, count_of
from tidemark.pipeline.settings import Unfinished

TAKEN_ALONG = 20  # at most so many manifests of earlier runs, so that the run finishes its own in time
NEXT = "next: "  # begins the last line of an error
NAMED = 10  # a log or a message names at most so many manifests one by one

HeldElsewhere = Callable[[Manifest], bool]


def never_held(manifest: Manifest) -> bool:
    """Return false: the command line does not know the runs of Airflow."""
    del manifest
    return False


def older_unfinished(context: Context, own: Collection[int], held: HeldElsewhere = never_held) -> list[Manifest]:
    """Return the unfinished manifests of other runs that nothing works on: not done, or replayed in some sinks only.

    ``own`` are the ids of the run's own manifests. Leaves out manifests with a live attempt, and those that are
    ``held``: another DAG run, which has not ended, will process them.
    """
    database = context.database
    undone = database.manifests.undone(context.pipeline_name)
    half_replayed = database.manifests.half_replayed(context.pipeline_name, context.sink_names())
    return [
        manifest
        for manifest in (*undone, *half_replayed)
        if manifest.id not in own and not manifest.alive and not held(manifest)
    ]


def choose_to_take_along(context: Context, older: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests that a run processes besides its own, at most ``TAKEN_ALONG``, those with the fewest
    attempts first.

    Blocked manifests are left out: you must release them.
    """
    if context.pipeline.unfinished is not Unfinished.RETRY:
        return []
    able = [manifest for manifest in older if manifest.state is not ManifestState.BLOCKED]
    return sorted(able, key=lambda manifest: (manifest.attempt, manifest.id))[:TAKEN_ALONG]


def unfinished_lines(context: Context, older: Sequence[Manifest], taken: Collection[int] = ()) -> list[str]:
    """Return a line for each of these manifests, and the next step, for the log of a run."""
    lines = [
        f"not done: {described(manifest)}" + ("; this run takes it along" if manifest.id in taken else "")
        for manifest in older[:NAMED]
    ]
    if len(older) > NAMED:
        lines.append(f"not done: {len(older) - NAMED:,} more; next: tidemark status {context.pipeline_name}")
    not_taken = [manifest for manifest in older if manifest.id not in taken]
    return [*lines, f"next: {' and '.join(commands(not_taken))}"] if not_taken else lines


def described(manifest: Manifest) -> str:
    """Return which manifest of which run this is, its state, and the first line of its error."""
    state = {
        ManifestState.RUNNING: "running, its process is alive" if manifest.alive else manifest.death,
        ManifestState.DONE: "a replay has reached only some sinks",
    }.get(manifest.state, manifest.state.value)
    ranges = map(str, manifest.ranges[:3])
    more = f" and {len(manifest.ranges) - 3} more ranges" if len(manifest.ranges) > 3 else ""
    why = f": {manifest.reason.splitlines()[0]}" if manifest.reason else ""
    return f"manifest {manifest.id} of run {manifest.run_key}, {', '.join(ranges)}{more} ({state}){why}"


def next_step_of(manifest: Manifest) -> str:
    """Return the next step that the newest error of a manifest names, and then the command that finishes the
    manifest."""
    [command] = commands([manifest])
    steps = [line.removeprefix(NEXT) for line in (manifest.reason or "").splitlines() if line.startswith(NEXT)]
    if not steps or f"retry {manifest.pipeline_name}" in steps[-1]:
        return steps[-1] if steps else command
    return f"{steps[-1]}; then: {command}"


def commands(manifests: Sequence[Manifest]) -> list[str]:
    """Return the commands that finish these manifests of one pipeline; a blocked one is released by its id."""
    blocked = [manifest for manifest in manifests if manifest.state is ManifestState.BLOCKED]
    others = [manifest for manifest in manifests if manifest.state is not ManifestState.BLOCKED]
    return [manifest.retry for manifest in (*others[:1], *blocked[:NAMED])]


def refuse_older(older: Sequence[Manifest]) -> None:
    """Raise ``NotPublished`` if older manifests are unfinished; for pipelines with ``unfinished: fail``."""
    if older:
        raise NotPublished(
            f"this run is published; it fails, since earlier runs left {count_of(len(older), 'manifest')} not done "
            f"(unfinished: fail): {'; '.join(map(described, older[:NAMED]))}",
            manifests=[manifest.id for manifest in older],
            next_step=" and ".join(commands(older)),
        )
