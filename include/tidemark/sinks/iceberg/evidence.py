"""What a table says of the manifests in it: a property that is set in the same commit as the rows.

Snapshots would say it too, but programs that expire snapshots remove them, and the rows stay. The property is
compressed: a manifest takes two or three bytes. Each publication has a number there, and in the summary of its
snapshot: the sequence number of that snapshot, which the table never gives out again. After a rollback of the table,
which leaves its properties as they are, what has a higher number than the newest publication on main is not there.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

MANIFESTS: Final = "tidemark.manifests"  # a property of the table
NUMBER: Final = "tidemark.number"  # in the summary of a snapshot
MANIFEST: Final = "tidemark.manifest"
ATTEMPT: Final = "tidemark.attempt"
DIGEST: Final = "tidemark.digest"

Entry = tuple[int, int]  # attempt, number of its publication


@dataclass(frozen=True)
class Evidence:
    """``number`` is that of the newest publication on main; ``ever`` may name some that were rolled back."""

    number: int = 0
    ever: Mapping[int, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: TableMetadata) -> "Evidence":
        ever = _decoded(metadata.properties.get(MANIFESTS))
        return cls(_number_on_main(metadata, ever), ever)

    @property
    def attempts(self) -> dict[int, int]:
        """The attempt whose rows are in the table, by manifest."""
        return {manifest_id: attempt for manifest_id, (attempt, number) in self.ever.items() if number <= self.number}

    def with_next(self, manifest_id: int, attempt: int, number: int) -> str:
        """The property after one more publication."""
        there = {other: entry for other, entry in self.ever.items() if entry[1] <= self.number}
        return _encoded({**there, manifest_id: (attempt, number)})


def on_main(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The snapshots of the main branch, newest first, as far as they have not been expired."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    current = snapshots.get(metadata.current_snapshot_id or 0)
    while current is not None:
        yield current
        current = snapshots.get(current.parent_snapshot_id or 0)


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def digest_on_main(metadata: TableMetadata, manifest_id: int, attempt: int) -> str | None:
    """The digest of the rows that this attempt committed; None when its snapshot was expired, or rolled back."""
    wanted = {MANIFEST: str(manifest_id), ATTEMPT: str(attempt)}
    for snapshot in on_main(metadata):
        if wanted.items() <= summary_of(snapshot).items():
            return summary_of(snapshot).get(DIGEST)
    return None


def _number_on_main(metadata: TableMetadata, ever: Mapping[int, Entry]) -> int:
    """The number of the newest publication on main; 0 without any.

    When their snapshots were expired, they are those from before the oldest snapshot that is left.
    """
    oldest = 0
    for snapshot in on_main(metadata):
        if NUMBER in summary_of(snapshot):
            return int(summary_of(snapshot)[NUMBER])
        oldest = snapshot.sequence_number or 0
    return max((number for _, number in ever.values() if number < oldest), default=0)


def _encoded(entries: Mapping[int, Entry]) -> str:
    rows = sorted((manifest_id, *entry) for manifest_id, entry in entries.items())
    columns: list[list[int]] = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    steps = [columns[0][:1] + [after - before for before, after in zip(columns[0], columns[0][1:], strict=False)]]
    # Manifests are mostly published in the order of their ids, so these differences are mostly equal as well.
    ahead = [number - position for position, number in enumerate(columns[2])]
    return b64encode(zlib.compress(json.dumps([*steps, columns[1], ahead]).encode())).decode()


def _decoded(text: str | None) -> dict[int, Entry]:
    if text is None:
        return {}
    content: Any = json.loads(zlib.decompress(b64decode(text)))
    entries: dict[int, Entry] = {}
    manifest_id = 0
    for position, (step, attempt, ahead) in enumerate(zip(*content, strict=True)):
        manifest_id += step
        entries[manifest_id] = (attempt, ahead + position)
    return entries
