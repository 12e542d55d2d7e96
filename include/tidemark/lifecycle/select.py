"""Which manifests a command means: what is unfinished, what an attempt is at work on, what a replay names."""

from collections.abc import Sequence

from tidemark.errors import IllegalTransition, NotFound
from tidemark.lifecycle.context import Context
from tidemark.manifest import Manifest, ManifestState


def own_manifest(context: Context, manifest_id: int) -> Manifest:
    """A manifest of this pipeline; ``NotFound`` names the pipeline that it belongs to."""
    manifest = context.database.manifest(manifest_id)
    if manifest.pipeline_name != context.pipeline_name:
        raise NotFound(
            f"manifest {manifest_id} belongs to pipeline {manifest.pipeline_name}",
            next_step=f"name that pipeline: {manifest.pipeline_name}",
            pipeline=context.pipeline_name,
        )
    return manifest


def unfinished(context: Context, manifest_id: int | None = None) -> list[Manifest]:
    """What ``retry`` takes: planned, failed or running, and no attempt alive; a blocked one only when named."""
    states = [ManifestState.PLANNED, ManifestState.FAILED, ManifestState.RUNNING]
    if manifest_id is None:
        return [
            manifest for manifest in context.database.manifests(context.pipeline_name, states) if not manifest.alive
        ]
    manifest = own_manifest(context, manifest_id)
    if manifest.state is ManifestState.BLOCKED:
        context.database.unblock(manifest_id)
    refuse_at_work([manifest])
    return [] if manifest.state is ManifestState.DONE else [manifest]


def at_work(context: Context) -> list[Manifest]:
    """What ``retry`` leaves out: an attempt is alive, so somebody is finishing it."""
    running = context.database.manifests(context.pipeline_name, [ManifestState.RUNNING])
    return [manifest for manifest in running if manifest.alive]


def refuse_at_work(manifests: Sequence[Manifest]) -> None:
    """Raise ``IllegalTransition`` when an attempt is alive at one of them: taking over is a decision."""
    for manifest in manifests:
        if manifest.alive:
            raise IllegalTransition(
                f"attempt {manifest.attempt} is alive and at work",
                next_step="wait for it; or fence it: "
                f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id} --take-over",
                pipeline=manifest.pipeline_name,
                manifest=manifest.id,
            )


def replayable(context: Context, *, manifest_id: int | None = None, run_key: str | None = None) -> list[Manifest]:
    """The manifests a replay means: the one named, or all of a run, or what covers it."""
    if manifest_id is not None:
        return [own_manifest(context, manifest_id)]
    run = context.database.find_run(context.pipeline_name, run_key or "")
    if run is None:
        raise NotFound(
            f"there is no run {run_key}",
            next_step=f"list runs with: tidemark manifests {context.pipeline_name}",
            pipeline=context.pipeline_name,
        )
    return context.database.manifests(ids=run["manifests"] or run["covered_by"])
