"""Records that lie as JSON files in the store of a sink."""

import json
from dataclasses import replace
from typing import Any

from tidemark.failpoints import failpoint
from tidemark.paths import RECORDS, RecordName
from tidemark.storage.base import Move, ObjectStore


def record_in(store: ObjectStore, name: RecordName) -> dict[str, Any] | None:
    """The content of a record's file; None when it does not exist, or is damaged."""
    content = store.get(str(name))
    try:
        record = None if content is None else json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def rename_records(store: ObjectStore, old: str, new: str) -> None:
    """Move the records of a pipeline to its new name, one after the other; their content stays as it was written."""
    moves = [
        Move(key, str(replace(name, pipeline_name=new)), size)
        for key, size in store.list(f"{RECORDS}/{old}")
        if (name := RecordName.parse(key))
    ]
    store.move_each(moves, lambda: None, lambda: failpoint("rename.mid"))
    store.sync(move.key for move in moves)
    store.delete_folder(f"{RECORDS}/{old}")
