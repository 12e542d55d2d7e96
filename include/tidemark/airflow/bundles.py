"""Bundles: several manifests of a group that one mapped task processes, if its file says ``airflow: {bundle: N}``.

To start a Spark application takes 12 s of a processor; a small manifest is one second of work.
"""

from collections.abc import Iterable, Mapping, Sequence

from tidemark.errors import NotDone, TidemarkError, WorkFailed
from tidemark.model.manifest import Manifest, ManifestState, count_of

Planned = int | list[int]  # the manifest of a mapped task, or its bundle
NAMED = 10  # manifests that an error names one by one


def bundled(manifests: Iterable[Manifest], most: int, offsets: int) -> list[list[int]]:
    """Group manifests, in their order, into lists of ids. A bundle has at most ``most`` manifests and ``offsets``
    offsets (``spark.records_per_task``), so that one Spark task reads it. A larger manifest gets a bundle alone; other
    tasks of Airflow can then run in parallel.
    """
    bundles: list[list[int]] = []
    held = 0
    for manifest in manifests:
        span = sum(part.span for part in manifest.ranges)
        if not bundles or len(bundles[-1]) == most or held + span > offsets:
            bundles.append([])
            held = 0
        bundles[-1].append(manifest.id)
        held += span
    return bundles


def flat(planned: Iterable[Planned]) -> list[int]:
    """Return the manifests of the list that ``plan`` returned, with or without bundles."""
    return [manifest_id for each in planned for manifest_id in (each if isinstance(each, list) else [each])]


def in_turn(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Sort the manifests of pipelines with the fewest attempts first: a manifest that kills Spark each time must not
    keep others from being done. Manifests of one pipeline keep their order.
    """
    begun: dict[str, int] = {}
    for manifest in manifests:
        if manifest.state is not ManifestState.DONE:
            begun[manifest.pipeline_name] = max(begun.get(manifest.pipeline_name, 0), manifest.attempt)
    return sorted(manifests, key=lambda manifest: begun.get(manifest.pipeline_name, 0))


def refuse_failed(
    group_name: str, manifests: Sequence[Manifest], errors: Mapping[int, TidemarkError], *, may_help: bool
) -> None:
    """Raise an error that names the failed manifests; ``manifests`` are all of this task that were begun or are still
    to be.

    With ``may_help`` Airflow tries the bundle again, without the manifests that are done.
    """
    if not errors:
        return
    failed = [manifest for manifest in manifests if manifest.id in errors]
    named = [
        f"manifest {manifest.id} of {manifest.pipeline_name}: {errors[manifest.id].what.splitlines()[0]}"
        for manifest in failed[:NAMED]
    ]
    more = [f"and {len(failed) - NAMED} more"] if len(failed) > NAMED else []
    kind = WorkFailed if may_help else NotDone
    raise kind(
        f"{len(failed)} of {count_of(len(manifests), 'manifest')} of this task failed: {'; '.join([*named, *more])}",
        next_step=f"tidemark status {group_name} has the next step of each; this task, tried again or cleared, does "
        "those that are not done",
        pipeline=group_name,
    )
