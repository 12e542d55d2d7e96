"""The file ``_SUCCESS`` in the folder of a complete hour. It says its revision, and never goes back to an older one."""

import json

from tidemark.event_hours import key
from tidemark.failpoints import failpoint
from tidemark.paths import SUCCESS, Layout
from tidemark.sinks.base import CompleteHour
from tidemark.storage.base import ObjectStore


def show_complete(store: ObjectStore, pipeline_name: str, layout: Layout, topic: str, hour: CompleteHour) -> None:
    """Put the file of one topic's hour, unless it says this revision or a higher one.

    It is put only while it is as it was read: so a process that was paused in between does not replace a newer one.
    """
    path = f"{layout.folder(pipeline_name, topic, hour.start)}/{SUCCESS}"
    content = {"pipeline": pipeline_name, "hour": f"{key(hour.start)}Z", "revision": hour.revision}
    text = json.dumps({**content, "rows": hour.rows, "late": hour.late}).encode()
    while True:
        before = store.get(path)
        if before is not None and _revision(before) >= hour.revision:
            return
        failpoint("hours.before_success")
        if store.replace(path, before, text):
            return


def _revision(content: bytes) -> int:
    """The revision that a file says; 0 for a file that somebody else has put there."""
    try:
        return int(json.loads(content)["revision"])
    except (ValueError, TypeError, KeyError):
        return 0
