"""Reads and renames records that are JSON files in the store of a sink."""

import json
from dataclasses import replace
from typing import Any

from tidemark.paths import RECORDS, RecordName
from tidemark.sinks.object_store.renamed_folder import rename_folder
from tidemark.storage.base import ObjectStore


def record_in(store: ObjectStore, name: RecordName) -> dict[str, Any] | None:
    """Return the content of a record's file; None if it does not exist or is damaged."""
    content = store.get(str(name))
    try:
        record = None if content is None else json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def rename_records(store: ObjectStore, old: str, new: str) -> None:
    """Move the records of a pipeline to its new name, one after the other; their content stays as it was written."""

    def renamed(key: str) -> str | None:
        name = RecordName.parse(key)
        return str(replace(name, pipeline_name=new)) if name else None

    rename_folder(store, f"{RECORDS}/{old}", renamed)
