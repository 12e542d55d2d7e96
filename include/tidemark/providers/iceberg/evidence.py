"""The evidence of manifests in a table: a property that is set in the same commit as the rows.

Snapshots would say it too, but programs that expire snapshots remove them, and the rows stay. The property is
compressed: a manifest takes two or three bytes. Each publication has a number there, and in the summary of its
snapshot: the sequence number of that snapshot, which the table never gives out again. After a rollback of the table,
which leaves its properties as they are, what has a higher number than the newest publication on main is not there.

A manifest that was ever published keeps its entry. What a rollback took away loses its number with the next
publication: rows of an earlier attempt may be in the table again, and nobody vouches for them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tidemark.providers.iceberg.history import main_with_expired, newest_shown
from tidemark.providers.lake_tables.merges import packed, steps_of, unpacked
from tidemark.providers.lake_tables.output import DIGEST

MANIFESTS: Final = "tidemark.manifests"  # a property of the table
NEWEST: Final = "tidemark_newest"  # a tag at the newest publication: programs that expire snapshots keep it
NUMBER: Final = "tidemark.number"  # in the summary of a snapshot
MANIFEST: Final = "tidemark.manifest"
ATTEMPT: Final = "tidemark.attempt"

Entry = tuple[int, int]  # attempt, number of its publication; 0 when a rollback took it away


@dataclass(frozen=True)
class Evidence:
    """``number`` is that of the newest publication on main; ``ever`` has every manifest that was published, also what
    was rolled back.

    Up to the id ``unsure`` the table may have rows of a manifest that ``ever`` lacks: earlier versions forgot what was
    rolled back. None when nobody has looked for them yet.
    """

    number: int = 0
    ever: Mapping[int, Entry] = field(default_factory=dict)
    unsure: int | None = None

    @classmethod
    def of(cls, table: Table, pipeline_name: str) -> "Evidence":
        """Reads older metadata where no snapshot that is left on main says which publications it has, and manifest
        files and rows where that does not say it either."""
        ever, unsure = _decoded(table.metadata.properties.get(MANIFESTS))
        number = number_on_main(table.metadata)
        if number is None:
            number = _newest_number(main_with_expired(table))
        if number is None:
            number = newest_shown(table, pipeline_name, ever, _kept(table.metadata, ever))
        return cls(number, ever, unsure)

    @property
    def attempts(self) -> dict[int, int]:
        """The attempt whose rows are in the table, by manifest."""
        return {manifest_id: attempt for manifest_id, (attempt, number) in self.ever.items() if self._is_there(number)}

    def _is_there(self, number: int) -> bool:
        return 0 < number <= self.number

    def never_had(self, manifest_id: int) -> bool:
        """Whether no attempt at the manifest was ever published here; false when nobody knows."""
        return manifest_id not in self.ever and self.unsure is not None and manifest_id > self.unsure

    def is_sure_above(self, manifest_id: int) -> bool:
        """Whether ``ever`` has all manifests with higher ids that the table may have rows of."""
        return not self.ever or (self.unsure is not None and self.unsure <= manifest_id)

    def with_next(self, manifest_id: int, attempt: int, number: int, unsure: int | None) -> str:
        """The property after one more publication."""
        present = {other: (entry[0], entry[1] if self._is_there(entry[1]) else 0) for other, entry in self.ever.items()}
        return _encoded({**present, manifest_id: (attempt, number)}, unsure)


def main_snapshots(metadata: TableMetadata) -> Iterator[Snapshot]:
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
    for snapshot in main_snapshots(metadata):
        if wanted.items() <= summary_of(snapshot).items():
            return summary_of(snapshot).get(DIGEST)
    return None


def number_on_main(metadata: TableMetadata) -> int | None:
    """The number of the newest publication on main; None when no snapshot that is left there says it.

    The oldest that is left may have had others before it: an expired snapshot leaves no trace.
    """
    if metadata.current_snapshot_id is None:
        return 0
    return _newest_number(main_snapshots(metadata))


def _newest_number(newest_first: Iterable[Snapshot]) -> int | None:
    numbers = (summary_of(snapshot).get(NUMBER) for snapshot in newest_first)
    return next((int(number) for number in numbers if number is not None), None)


def _kept(metadata: TableMetadata, ever: Mapping[int, Entry]) -> int | None:
    """The snapshot with the rows of all publications, which its tag has kept; None when somebody removed the tag."""
    ref = metadata.refs.get(NEWEST)
    snapshot = metadata.snapshot_by_id(ref.snapshot_id) if ref else None
    newest = max((number for _, number in ever.values()), default=0)
    if snapshot is None or summary_of(snapshot).get(NUMBER) != str(newest):
        return None
    return snapshot.snapshot_id


def _encoded(entries: Mapping[int, Entry], unsure: int | None) -> str:
    rows = sorted((manifest_id, *entry) for manifest_id, entry in entries.items())
    ids, attempts, numbers = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    # Manifests are mostly published in the order of their ids, so these differences are mostly equal as well.
    ahead = [number - position for position, number in enumerate(numbers)]
    return packed([steps_of(ids), attempts, ahead, unsure])


def _decoded(text: str | None) -> tuple[dict[int, Entry], int | None]:
    """The entries, and up to which id others may be missing; earlier versions have written no such id."""
    if text is None:
        return {}, None
    steps, attempts, ahead, *unsure = unpacked(text)
    entries: dict[int, Entry] = {}
    for manifest_id, attempt, number in zip(accumulate(steps), attempts, ahead, strict=True):
        entries[manifest_id] = attempt, number + len(entries)
    return entries, unsure[0] if unsure else None
