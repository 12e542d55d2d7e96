"""Finds what dead attempts left in the staging of a sink that has staging of its own."""

from collections.abc import Iterator, Sequence

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest, ManifestState
from tidemark.problem import Problem
from tidemark.sinks.base import Sink


def left_in_staging(database: ManifestDatabase, sink: Sink, manifests: Sequence[Manifest]) -> Iterator[Problem]:
    """The done ones of these manifests of the pipeline that have staged output and no attempt at work."""
    own = {manifest.id for manifest in manifests}
    staged = [manifest_id for manifest_id in sink.staged_manifests() if manifest_id in own]
    current = database.manifests(ids=staged) if staged else []
    dead = [manifest.id for manifest in current if manifest.state is ManifestState.DONE and not manifest.alive]
    # Ask again: an attempt that was running may have ended since, and removed its staging.
    still_staged = set(sink.staged_manifests()) if dead else set()
    for manifest_id in dead:
        if manifest_id in still_staged:
            what = "staging was left by an attempt that died"
            yield Problem(manifest_id, what, f"tidemark retry {sink.pipeline_name}")
