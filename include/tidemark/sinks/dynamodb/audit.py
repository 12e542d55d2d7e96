"""The audit of totals in DynamoDB: markers agree with publications, and, ``deep``, items with markers and one another.

Pages of a scan are read at different moments. What seems wrong is therefore looked at again, key by key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.model.manifest import Manifest, Publication, count_of
from tidemark.model.problem import Problem
from tidemark.sinks.aggregates.stray_contributions import what_of_strays
from tidemark.sinks.base import Expected, Ledger, mended_by_replay
from tidemark.sinks.dynamodb.items import KeyGroup, combine_groups, key_text
from tidemark.sinks.dynamodb.markers import Marker, Markers
from tidemark.sinks.dynamodb.totals import Totals

_BY_HAND = "no attempt of Tidemark has left them there: delete those items by hand"

_LEFT = "nobody takes them out any more: delete those items by hand, then audit again"
_REPLAYS = "the manifests above may have contributed to them: replay those, then audit again"


@dataclass
class _Contributed:
    """The numbers of keys and rows that the items of a manifest have, and a checksum of them."""

    keys: int = 0
    rows: int = 0
    checksum: int = 0
    other_text: list[str] = field(default_factory=list)  # keys that are written in another way now
    left: list[str] = field(default_factory=list)  # keys of contributions of another attempt than is there whole

    def add(self, attempt: int, group: KeyGroup, marker: Marker | None, key: str) -> None:
        """Count a contribution; ``key`` is how its key would be written now."""
        if marker is not None and marker.attempt != attempt:
            self.left.append(group.key)
            return
        self.keys += 1
        self.rows += group.rows
        self.checksum = (self.checksum + group.checksum()) % 2**64
        if group.key != key:
            self.other_text.append(group.key)


def differences_of_dynamodb(
    expected: Expected, ledger: Ledger, totals: Totals, markers: Markers, *, deep: bool
) -> Iterator[Problem]:
    """What the tables hold and should not, or lack; ``deep`` combines all contributions again."""
    present, published = markers.all(), expected.published()
    at_work = {manifest.id for manifest in expected.manifests if manifest.alive}
    for manifest, _ in published:
        marker = present.get(manifest.id)
        if marker is not None and not marker.whole and manifest.id not in at_work:
            what = f"attempt {marker.putting} has replaced some of its contributions, and did not end"
            yield mended_by_replay(manifest, what)
    if deep:
        whole = [(manifest, row) for manifest, row in published if not expected.given_up(manifest.id, row.attempt)]
        yield from _contents(expected, ledger, totals, markers, present, whole)


def _contents(
    expected: Expected,
    ledger: Ledger,
    totals: Totals,
    markers: Markers,
    before: Mapping[int, Marker],
    published: Sequence[tuple[Manifest, Publication]],
) -> Iterator[Problem]:
    contributed: dict[int, _Contributed] = {}
    sums: dict[str, KeyGroup] = {}
    contributor: dict[str, int] = {}
    decimals = markers.decimals()
    for manifest_id, attempt, group in totals.all_contributions():
        of_manifest = contributed.setdefault(manifest_id, _Contributed())
        of_manifest.add(attempt, group, before.get(manifest_id), key_text(group.columns, decimals))
        sums[group.key] = combine_groups(sums.get(group.key), group, totals.value_columns)
        contributor[group.key] = max(manifest_id, contributor.get(group.key, 0))
    after = markers.all()
    still = {id_ for id_, marker in after.items() if before.get(id_) == marker and marker.whole}
    incomplete = [
        difference
        for manifest, publication in published
        if manifest.id in still
        for difference in _differences_of_manifest(
            manifest, publication, after[manifest.id], contributed.get(manifest.id, _Contributed())
        )
    ]
    yield from incomplete
    for stray, (why, step) in what_of_strays(expected, ledger, contributed.keys() - after.keys(), _BY_HAND).items():
        number = f"{contributed[stray].keys:,} contributions of manifest {stray}"
        yield Problem(None, f"{ledger.target} has {number}, {why}", step)
    yield from _totals(ledger, totals, sums, contributor, first=_REPLAYS if incomplete else "")


def _differences_of_manifest(
    manifest: Manifest, publication: Publication, marker: Marker, contributed: _Contributed
) -> Iterator[Problem]:
    written = publication.counts.written
    if contributed.rows != written:
        what = f"the contributions of it count {contributed.rows:,} records where {written:,} were written"
        yield mended_by_replay(manifest, what)
    elif str(contributed.checksum) != marker.checksum:
        yield mended_by_replay(manifest, "its contributions were changed by hand")
    elif contributed.other_text:
        what = (
            f"{count_of(len(contributed.other_text), 'contribution')} of it have a key that is written in another way "
            f"now, such as {min(contributed.other_text)}: there may be two totals of one key"
        )
        yield mended_by_replay(manifest, what)
    if contributed.left:
        what = (
            f"{count_of(len(contributed.left), 'contribution')} of it are not of attempt {marker.attempt}, which is "
            f"there whole, such as of {min(contributed.left)}"
        )
        yield Problem(manifest.id, what, _LEFT)


def _totals(
    ledger: Ledger,
    totals: Totals,
    expected: dict[str, KeyGroup],
    contributor: Mapping[str, int],
    *,
    first: str,
) -> Iterator[Problem]:
    """Compares all totals with all contributions; a replay of any manifest of a total combines it again."""
    wrong: dict[int | None, list[str]] = {}
    for key in totals.wrong(expected):
        wrong.setdefault(contributor.get(key), []).append(key)
    for manifest_id, keys in sorted(wrong.items(), key=lambda entry: entry[0] or 0):
        number = f"{len(keys):,} totals of {ledger.target}"
        if manifest_id is None:
            yield Problem(None, f"{number} have no contributions, such as {min(keys)}", first or _BY_HAND)
        else:
            yield Problem(
                manifest_id,
                f"{number} are not the combination of their contributions, such as {min(keys)}",
                f"tidemark replay {ledger.pipeline_name} --manifest {manifest_id}",
            )
