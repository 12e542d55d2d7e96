"""The file ``_SUCCESS`` in the folder of a complete hour. It says its revision, and never goes back to an older one."""

import json
import logging
import time

from tidemark.errors import SinkRefused, Unavailable
from tidemark.failpoints import failpoint
from tidemark.model.event_hours import key
from tidemark.paths import SUCCESS_FILE, Layout
from tidemark.sinks.capabilities import CompleteHour
from tidemark.storage.base import ObjectStore

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # between tries: others may put the file too, and are soon done
LOG = logging.getLogger(__name__)


def show_complete(store: ObjectStore, pipeline_name: str, layout: Layout, topic: str, hour: CompleteHour) -> None:
    """Put the file of one topic's hour, unless it says this revision or a higher one.

    Raises ``SinkRefused`` when the store does not replace a file that nobody has changed, and ``Unavailable`` when
    others replace it all the time.
    """
    folder = layout.folder(pipeline_name, topic, hour.start)
    content = {
        "pipeline": pipeline_name, "hour": f"{key(hour.start)}Z", "revision": hour.revision,
        "rows": hour.rows, "late": hour.late, "without_rows": vars(hour.without_rows),
    }  # fmt: skip
    text = json.dumps(content).encode()
    _put(store, f"{folder}/{SUCCESS_FILE}", text, hour.revision, pipeline_name)


def hide(store: ObjectStore, folder: str) -> None:
    """Remove the file of one topic's hour, if Tidemark has put it there."""
    path = f"{folder}/{SUCCESS_FILE}"
    if _revision(store.get(path) or b"") > 0:
        store.delete([path])


def _put(store: ObjectStore, path: str, text: bytes, revision: int, pipeline_name: str) -> None:
    """The file is put only while it is as it was read: so a process that was paused in between does not replace a newer
    one."""
    for pause in (*PAUSES_S, None):
        before = store.get(path)
        if before is not None and _revision(before) >= revision:
            return
        failpoint("hours.before_success")
        if store.replace(path, before, text):
            return
        if pause is None:
            raise _not_put(store, path, before, pipeline_name)
        LOG.warning("%s/%s was not put, since it is not as it was read: trying again in %g s", store.root, path, pause)
        time.sleep(pause)


def _not_put(store: ObjectStore, path: str, before: bytes | None, pipeline_name: str) -> SinkRefused | Unavailable:
    what = f"{store.root}/{path} could not be put in {len(PAUSES_S) + 1} tries"
    if store.get(path) == before:
        return SinkRefused(
            f"{what}: the store says that it has changed (If-Match), and it has not",
            next_step="the rows of the hour are published, its file is not there or says an older revision. Use a "
            "store, or a version of it, that has conditional writes with If-Match, or take success_files out of the "
            f"sink; then: tidemark run {pipeline_name}",
            pipeline=pipeline_name,
        )
    return Unavailable(
        f"{what}: others replaced it each time",
        next_step="the rows of the hour are published; look which other processes write there, then: tidemark run "
        f"{pipeline_name}",
        pipeline=pipeline_name,
    )


def _revision(content: bytes) -> int:
    """The revision that a file says; 0 for a file that somebody else has put there."""
    try:
        return int(json.loads(content)["revision"])
    except (ValueError, TypeError, KeyError):
        return 0
