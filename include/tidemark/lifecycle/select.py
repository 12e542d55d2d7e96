"""Selects the manifests that a command works on: unfinished ones, those at work, those that a replay names."""

from collections.abc import Sequence

from tidemark.errors import IllegalTransition, NotFound
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Manifest, ManifestState


def own_manifest(context: Context, manifest_id: int) -> Manifest:
    """Return a manifest of this pipeline. For a manifest of another one raise ``NotFound``, which names that one."""
    manifest = context.database.manifests.get(manifest_id)
    if manifest.pipeline_name != context.pipeline_name:
        raise NotFound(
            f"manifest {manifest_id} belongs to pipeline {manifest.pipeline_name}",
            next_step=f"name that pipeline: {manifest.pipeline_name}",
        )
    return manifest


def unfinished(context: Context, manifest_id: int | None = None) -> list[Manifest]:
    """Return the manifests for ``retry`` that have no live attempt: planned, failed or running ones, and done ones
    where a replay has reached only some sinks.

    A blocked manifest is returned, and released, only by its id. Raises ``IllegalTransition`` if an attempt at the
    named manifest is alive.
    """
    if manifest_id is None:
        half_replayed = context.database.manifests.half_replayed(context.pipeline_name, context.sink_names())
        every = (*context.database.manifests.undone(context.pipeline_name), *half_replayed)
        return [each for each in every if each.state is not ManifestState.BLOCKED and not each.alive]
    manifest = own_manifest(context, manifest_id)
    if manifest.state is ManifestState.BLOCKED:
        context.database.manifests.unblock(manifest_id)
    refuse_at_work([manifest])
    return [manifest] if is_unfinished(context, manifest) else []


def is_unfinished(context: Context, manifest: Manifest) -> bool:
    """Return whether a manifest is not done, or a replay has reached only some sinks."""
    return manifest.state is not ManifestState.DONE or bool(context.sinks_to_finish(manifest))


def at_work(context: Context) -> list[Manifest]:
    """Return the manifests that ``retry`` leaves out because an attempt at them is alive."""
    undone = context.database.manifests.undone(context.pipeline_name)
    return [manifest for manifest in undone if manifest.state is ManifestState.RUNNING and manifest.alive]


def refuse_at_work(manifests: Sequence[Manifest]) -> None:
    """Raise ``IllegalTransition`` when an attempt at one of the manifests is alive."""
    for manifest in manifests:
        if manifest.alive:
            raise IllegalTransition(
                f"attempt {manifest.attempt} is alive and at work",
                next_step="wait for it; or take over from it: "
                f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id} --take-over",
                pipeline=manifest.pipeline_name,
                manifest=manifest.id,
            )


def replayable(context: Context, *, manifest_id: int | None = None, run_key: str | None = None) -> list[Manifest]:
    """Return the manifests that a replay names: one by its id, or all of a run. If the run has none of its own, return
    those that cover it."""
    if manifest_id is not None:
        return [own_manifest(context, manifest_id)]
    run = context.database.runs.find(context.pipeline_name, run_key or "")
    if run is None:
        raise NotFound(
            f"there is no run {run_key}", next_step=f"list runs with: tidemark manifests {context.pipeline_name}"
        )
    return context.database.manifests.find(ids=run["manifests"] or run["covered_by"])
