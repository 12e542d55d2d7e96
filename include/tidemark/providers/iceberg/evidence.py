"""Finds the evidence of a table: a small file that each publication writes beside it, and that the summary of its
snapshot names. So evidence and rows go back together if another program rolls the table back.

The file lies in a folder that programs which remove orphan files skip. Its name may vanish together with an expired
snapshot; then the table's older metadata still has the summary. If that is gone too, nothing shows what the table
holds, and you must decide.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tidemark.providers.lake_tables.output import DIGEST

EVIDENCE: Final = "tidemark.evidence"  # in the summary of a snapshot: the key of the evidence file
MANIFEST: Final = "tidemark.manifest"
ATTEMPT: Final = "tidemark.attempt"
NEWEST: Final = "tidemark_newest"  # a tag at the newest publication: programs that expire snapshots keep its snapshot
OLD_EVIDENCE: Final = "tidemark.manifests"  # the property in which versions up to 0.3 kept the evidence
FOLDER: Final = "_evidence"
KEPT: Final = 500  # the newest evidence files; older ones are removed, unless a snapshot names them


def new_key(number: int) -> str:
    """Return a key for the evidence with this number. The key is unique, also among other tries of the commit."""
    return f"{FOLDER}/{number:020d}-{uuid4().hex}"


def outdated(keys: Iterable[str], metadata: TableMetadata) -> list[str]:
    """Return the evidence files that nobody needs any longer."""
    named = {summary_of(snapshot).get(EVIDENCE) for snapshot in metadata.snapshots}
    return [key for key in sorted(keys)[:-KEPT] if key not in named]


def newest_key(table: Table) -> str | None:
    """Return the key of the evidence with which the rows on main were published.

    None if nothing was published, or if no remaining metadata says what was. Reads older metadata if no remaining
    snapshot of main names a key.
    """
    keys = (summary_of(snapshot).get(EVIDENCE) for snapshot in _main_with_expired(table))
    return next((key for key in keys if key), None)


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def digest_on_main(metadata: TableMetadata, manifest_id: int, attempt: int) -> str | None:
    """Return the digest of the rows that this attempt committed; None if its snapshot was expired or rolled back."""
    wanted = {MANIFEST: str(manifest_id), ATTEMPT: str(attempt)}
    for snapshot in main_snapshots(metadata):
        if wanted.items() <= summary_of(snapshot).items():
            return summary_of(snapshot).get(DIGEST)
    return None


def main_snapshots(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Yield the snapshots of the main branch that have not been expired, newest first."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    current = snapshots.get(metadata.current_snapshot_id or 0)
    while current is not None:
        yield current
        current = snapshots.get(current.parent_snapshot_id or 0)


def _main_with_expired(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots of the main branch, newest first, expired ones too if the table's metadata log still has
    them.

    Each older metadata file is read only when a parent is looked for.
    """
    snapshots: dict[int, Snapshot] = {}
    wanted, last = table.metadata.current_snapshot_id, None
    if wanted is None:
        return
    for metadata in _newest_first(table):
        # Older metadata win: some programs write that a snapshot has no parent when they expire the parent.
        snapshots |= {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        while wanted in snapshots:
            if wanted != last:
                yield snapshots[wanted]
            last = wanted
            if snapshots[wanted].parent_snapshot_id is None:
                break
            wanted = snapshots[wanted].parent_snapshot_id


def _newest_first(table: Table) -> Iterator[TableMetadata]:
    yield table.metadata
    for entry in reversed(table.metadata.metadata_log):
        with suppress(FileNotFoundError, ValueError):  # another program has removed or truncated the file
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
