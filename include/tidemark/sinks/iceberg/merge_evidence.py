"""What a table of current rows says of its merges, in properties that are set in the same commit as the rows.

``tidemark.key`` has the columns of its key: with another key, rows of one key would stand beside each other.
``tidemark.merges`` has of each manifest the attempt, and what became of its rows; it is compressed like the evidence.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

from pyiceberg.table import Table

from tidemark.errors import SinkRefused
from tidemark.sinks.iceberg.evidence import MANIFESTS

KEY: Final = "tidemark.key"
MERGES: Final = "tidemark.merges"


@dataclass(frozen=True)
class MergeCounts:
    """Of the rows of an attempt, ``superseded`` ones had a newer row of their key in the manifest, and ``stale`` ones
    in the table. ``left`` are rows of earlier attempts that this one did not make, and that stay."""

    attempt: int
    superseded: int = 0
    stale: int = 0
    left: int = 0


def merges_of(table: Table) -> dict[int, MergeCounts]:
    """The counts of each manifest."""
    text = table.metadata.properties.get(MERGES)
    if text is None:
        return {}
    steps, *columns = json.loads(zlib.decompress(b64decode(text)))
    counts = (MergeCounts(*row) for row in zip(*columns, strict=True))
    return dict(zip(accumulate(steps), counts, strict=True))


def with_merge(table: Table, key: Sequence[str], manifest_id: int, counts: MergeCounts) -> dict[str, str]:
    """The properties after one more merge."""
    merges = sorted({**merges_of(table), manifest_id: counts}.items())
    ids = [0, *(of_manifest for of_manifest, _ in merges)]
    steps = [after - before for before, after in pairwise(ids)]
    content = [steps, *zip(*(astuple(of_manifest) for _, of_manifest in merges), strict=True)]
    return {KEY: json.dumps(list(key)), MERGES: b64encode(zlib.compress(json.dumps(content).encode())).decode()}


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
