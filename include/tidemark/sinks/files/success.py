"""Writes the file ``_SUCCESS`` in the folder of a complete hour. It has the hour's revision, and never goes back to an
older one."""

import json
import logging
import time

from tidemark.errors import SinkRefused, Unavailable
from tidemark.failpoints import failpoint
from tidemark.model.event_hours import key
from tidemark.paths import SUCCESS_FILE, Layout
from tidemark.sinks.capabilities import CompleteHour
from tidemark.storage.base import ObjectStore

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # between tries, because other processes may put the file too
LOG = logging.getLogger(__name__)


def show_complete(store: ObjectStore, pipeline_name: str, layout: Layout, topic: str, hour: CompleteHour) -> None:
    """Put the file of one topic's hour, unless it has this revision or a higher one.

    Raises ``SinkRefused`` if the store does not replace a file that has not changed, and ``Unavailable`` if other
    processes replace it each time.
    """
    folder = layout.folder(pipeline_name, topic, hour.start)
    content = {
        "pipeline": pipeline_name, "hour": f"{key(hour.start)}Z", "revision": hour.revision,
        "rows": hour.rows, "late": hour.late, "without_rows": vars(hour.without_rows),
    }  # fmt: skip
    text = json.dumps(content).encode()
    _put(store, f"{folder}/{SUCCESS_FILE}", text, hour.revision, pipeline_name)


def hide(store: ObjectStore, folder: str) -> None:
    """Remove the file of one topic's hour, if Tidemark has written it."""
    path = f"{folder}/{SUCCESS_FILE}"
    if _revision(store.get(path) or b"") > 0:
        store.delete([path])


def _put(store: ObjectStore, path: str, text: bytes, revision: int, pipeline_name: str) -> None:
    """Put the file only if it is still as it was read. So a process that was paused in between does not replace a newer
    file."""
    for pause in (*PAUSES_S, None):
        before = store.get(path)
        if before is not None and _revision(before) >= revision:
            return
        failpoint("hours.before_success")
        if store.replace(path, before, text):
            return
        if pause is None:
            raise _not_put(store, path, before, pipeline_name)
        LOG.warning("%s/%s was not put, because it has just changed: trying again in %g s", store.root, path, pause)
        time.sleep(pause)


def _not_put(store: ObjectStore, path: str, before: bytes | None, pipeline_name: str) -> SinkRefused | Unavailable:
    what = f"{store.root}/{path} could not be put in {len(PAUSES_S) + 1} tries"
    if store.get(path) == before:
        return SinkRefused(
            f"{what}: the store refuses to replace it, as if it had changed (If-Match), but it has not",
            next_step="the rows of the hour are published, its file is not there or says an older revision. Use a "
            "store, or a version of it, that has conditional writes with If-Match, or take success_files out of the "
            f"sink; then: tidemark run {pipeline_name}",
            pipeline=pipeline_name,
        )
    return Unavailable(
        f"{what}: another process replaced it each time",
        next_step=f"the rows of the hour are published. Find the process that writes {path}; then: tidemark run "
        f"{pipeline_name}",
        pipeline=pipeline_name,
    )


def _revision(content: bytes) -> int:
    """Return the revision in a file; 0 for a file that Tidemark has not written."""
    try:
        return int(json.loads(content)["revision"])
    except (ValueError, TypeError, KeyError):
        return 0
