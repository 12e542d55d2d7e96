"""What a table of current rows says of its merges, in properties that are set in the same commit as the rows.

``tidemark.key`` has the columns of its key: with another key, rows of one key would stand beside each other.
``tidemark.merges`` has of each manifest the attempt, and what became of its rows; it is compressed like the evidence.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import accumulate
from typing import Any, Final

from pyiceberg.table import Table

from tidemark.errors import SinkRefused
from tidemark.providers.iceberg.evidence import MANIFESTS
from tidemark.providers.lake_tables.merges import CountedMerge, packed, steps_of, unpacked

KEY: Final = "tidemark.key"
MERGES: Final = "tidemark.merges"


def merges_of(table: Table) -> dict[int, tuple[int, CountedMerge]]:
    """Of each manifest the attempt, and what became of its rows."""
    text = table.metadata.properties.get(MERGES)
    if text is None:
        return {}
    steps, *columns = unpacked(text)
    merges = ((attempt, CountedMerge(*counts)) for attempt, *counts in zip(*columns, strict=True))
    return dict(zip(accumulate(steps), merges, strict=True))


def with_merge(table: Table, key: Sequence[str], manifest_id: int, attempt: int, merge: CountedMerge) -> dict[str, str]:
    """The properties after one more merge."""
    merges = dict(sorted({**merges_of(table), manifest_id: (attempt, merge)}.items()))
    rows = [(of, *astuple(counts)) for of, counts in merges.values()]
    return {KEY: json.dumps(list(key)), MERGES: packed([steps_of([*merges]), *zip(*rows, strict=True)])}


def refuse_other_key(table: Table, key: Sequence[str], context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` when rows with another key, or without one, were published into the table."""
    properties = table.metadata.properties
    if MANIFESTS not in properties:
        return
    before = json.loads(properties.get(KEY, "[]"))
    if before != list(key):
        raise SinkRefused(
            f"the table has {_described(before)}, the pipeline file says {_described(key)}",
            next_step="write another table, and read the topic into it from its begin; or correct key",
            **context,
        )


def _described(key: Sequence[str]) -> str:
    return f"one row for each key [{', '.join(key)}]" if key else "all rows"
