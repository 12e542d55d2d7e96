"""Waits for manifests that other runs are at work on, and does nothing that they have done."""

import logging
import time
from datetime import datetime

from tidemark.lifecycle.context import Context
from tidemark.model.manifest import AttemptState, ManifestState

log = logging.getLogger(__name__)
OTHERS_POLL = 3.0  # seconds; a manifest takes from 15 s to minutes
LONGEST_WAIT = 1800.0  # seconds that a replay waits for a live attempt, before a person must look at it


def wait_for_others(
    context: Context, ids: list[int], states: list[ManifestState] | None = None, limit: float | None = None
) -> None:
    """Wait while other runs process manifests of this run, at most ``limit`` seconds (None: as long as they are alive).

    Else ``close`` would fail though nothing is wrong, and a replay would fence the other run's attempt.
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
    """Return which attempt has done the manifest again since a run began that is to do so; None when none has.

    Runs of several dates may ask for a replay of one manifest at the same time: one of them is enough.
    """
    ended_well = (AttemptState.PUBLISHED, AttemptState.UNCHANGED)
    for row in reversed(context.database.attempts.of_manifest(manifest_id)):
        if since is not None and row["state"] in ended_well and row["started_at"] >= since:
            return f"attempt {row['attempt']} of {row['actor']}"
    return None
