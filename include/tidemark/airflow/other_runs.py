"""Waits for manifests that other runs are at work on, and skips manifests that they have done."""

import logging
import time
from datetime import datetime

from tidemark.lifecycle.context import Context
from tidemark.model.manifest import AttemptState, ManifestState

log = logging.getLogger(__name__)
OTHERS_POLL = 3.0  # seconds; a manifest takes from 15 s to minutes
LONGEST_WAIT = 1800.0  # seconds that a replay waits for a live attempt before it fails


def wait_for_others(
    context: Context, ids: list[int], states: list[ManifestState] | None = None, limit: float | None = None
) -> None:
    """Wait while other runs process these manifests, at most ``limit`` seconds (None: as long as they are alive).

    Otherwise ``close`` would fail although nothing is wrong, and a replay would fence the attempt of another run.
    """
    printed, deadline = "", time.monotonic() + limit if limit else None
    while busy := [manifest for manifest in context.database.manifests.find(states=states, ids=ids) if manifest.alive]:
        message = f"waiting for manifests {[manifest.id for manifest in busy]}: another task processes them"
        if message != printed:
            log.info(message)
            printed = message
        if deadline and time.monotonic() > deadline:
            return
        time.sleep(OTHERS_POLL)


def replayed_since(context: Context, manifest_id: int, since: datetime | None) -> str | None:
    """Return the attempt that replayed the manifest after ``since``, the start of a run that asks for it; None if there
    was none.

    Runs of several dates may ask for a replay of one manifest at the same time: one replay is enough.
    """
    ended_well = (AttemptState.PUBLISHED, AttemptState.UNCHANGED)
    for row in reversed(context.database.attempts.of_manifest(manifest_id)):
        if since is not None and row["state"] in ended_well and row["started_at"] >= since:
            return f"attempt {row['attempt']} of {row['actor']}"
    return None
