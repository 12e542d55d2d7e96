"""Records that lie as JSON files in the store of a sink."""

import json
from typing import Any

from tidemark.paths import RecordName
from tidemark.storage.base import ObjectStore


def record_in(store: ObjectStore, name: RecordName) -> dict[str, Any] | None:
    """The content of a record's file; None when it does not exist, or is damaged."""
    content = store.get(str(name))
    try:
        record = None if content is None else json.loads(content)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
