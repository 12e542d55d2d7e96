"""Checks the invariants (README.md) after every step of a schedule, whatever was killed, paused or repeated.

The model broker knows every record that ever had an offset. The oracle reads the real files that the exact reader gets,
and compares them with the broker's records, row by row.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from io import BytesIO
from pathlib import PurePath
from typing import Any

import pyarrow.parquet as pq

from tests.faults.lakes import Lake
from tests.faults.model_broker import Entry, Fate, Log
from tests.faults.model_world import NAME, ModelWorld
from tests.faults.other_sinks import OtherSink
from tidemark.lifecycle.progress import published_ends
from tidemark.model.manifest import Manifest, ManifestState, Publication
from tidemark.model.offsets import Range, TopicPartition, range_from
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.operations.audit import audit
from tidemark.paths import RecordName, manifest_staging
from tidemark.planner import Chain
from tidemark.sinks.base import Sink

Piece = tuple[int | None, int, str, int | None]  # start, end, kind, manifest
Place = tuple[str, int, int]  # topic, partition, offset

CHAINS = """
SELECT c.id, c.topic, c.topic_id, c.partition, r.start_offset, r.end_offset, r.kind::text, r.manifest_id
FROM tidemark.manifest_range r JOIN tidemark.chain c ON c.id = r.chain_id ORDER BY c.id, r.end_offset
"""
MOMENTS = """
SELECT DISTINCT r.run_key, r.cut_at, r.planned_up_to, c.topic, c.topic_id
FROM tidemark.run r JOIN tidemark.run_end e ON e.run_id = r.id JOIN tidemark.chain c ON c.id = e.chain_id
WHERE r.planned_up_to IS NOT NULL
"""
ENDS = """
SELECT DISTINCT ON (c.topic_id, c.partition) c.topic_id, c.partition,
       (SELECT max(r.end_offset) FROM tidemark.manifest_range r WHERE r.chain_id = c.id)
FROM tidemark.chain c ORDER BY c.topic_id, c.partition, c.generation DESC
"""
UNDONE = """
SELECT c.topic_id, c.partition, min(r.start_offset)
FROM tidemark.manifest_range r
JOIN tidemark.chain c ON c.id = r.chain_id
JOIN tidemark.manifest m ON m.id = r.manifest_id
WHERE r.kind = 'data' AND m.state <> 'done' AND NOT EXISTS (
    SELECT FROM tidemark.chain later JOIN tidemark.manifest_range a ON a.chain_id = later.id AND a.start_offset IS NULL
    WHERE (later.topic_id, later.partition) = (c.topic_id, c.partition) AND later.generation > c.generation
      AND a.end_offset <= r.start_offset)
GROUP BY c.topic_id, c.partition
"""
ANCHORS = """
SELECT c.generation, r.end_offset FROM tidemark.chain c JOIN tidemark.manifest_range r ON r.chain_id = c.id
WHERE r.start_offset IS NULL AND c.topic_id = %s AND c.partition = %s
"""
WITHOUT = "SELECT manifest_id FROM tidemark.accepted_damage WHERE sink = %s AND path = ''"
RUNS = "SELECT run_key, cut_at, reached, manifests, covered_by FROM tidemark.run"


class Violated(AssertionError):
    """An invariant does not hold; the message begins with the invariant's number."""


class Oracle:
    """Checks one world after each step, and remembers what must not change."""

    def __init__(self, world: ModelWorld) -> None:
        self.world = world
        self.behind = False  # the database was restored, and the lake's records are not adopted yet
        self.away = False  # another program has brought a target back, and what it lacks is not replayed yet
        self.forget()

    def forget(self) -> None:
        """Forget what was remembered of the database, because it was restored."""
        self.read: dict[tuple[str, int, int], list[object]] = {}  # by sink, manifest and attempt
        self.digests: dict[tuple[str, str], tuple[object, str]] = {}  # of records, with their states, by sink and key
        self.puts = -1  # those that the other sinks were looked at after
        self.contents: dict[tuple[str, int, int], dict[str, Any]] = {}  # by sink, manifest and attempt
        self.moments: set[str] = set()  # the runs whose times were looked at
        self.serials: dict[tuple[str, int], dict[Place, int]] = {}  # by sink and manifest, those of its records
        self.chains: dict[int, list[Piece]] = {}
        self.runs: dict[str, Any] = {}
        self.manifests: dict[int, Manifest] = {}

    def check(self) -> None:
        self._check_chains()
        self._check_runs()
        manifests = self.world.database.manifests.find(NAME)
        self._check_tokens(manifests)
        if not self.behind:
            self._check_published(manifests)
            self._check_moments()
            self._check_progress()
            if not self.away and self.puts != self.world.puts:
                for other in self.world.others:
                    self._check_other(other, manifests)
                self.puts = self.world.puts
        self.world.surgery = bool(self.world.actors) and self.world.surgery

    def _fail(self, number: str, what: str) -> None:
        raise Violated(f"{number}: {what}")

    def _check_chains(self) -> None:
        chains: dict[int, list[Piece]] = {}
        for chain, topic, topic_id, partition, *piece in self.world.sql.execute(CHAINS).fetchall():
            chains.setdefault(chain, []).append(tuple(piece))
            log = self.world.broker.by_id[topic_id].logs[partition]
            if piece[2] == "data" and piece[1] > log.most_stable:
                self._fail("I4 stable end", f"{topic}-{partition} {piece} ends above {log.most_stable}")
        for chain, pieces in chains.items():
            anchor, *others = pieces
            if anchor[0] is not None or any(piece[0] is None for piece in others):
                self._fail("I2 one anchor", f"chain {chain}: {pieces}")
            for before, after in zip(pieces, others, strict=False):
                if after[0] is None or after[0] < before[1]:
                    self._fail("I1 disjoint", f"chain {chain}: {before} and {after}")
                if after[0] > before[1]:
                    self._fail("I2 contiguous", f"chain {chain}: {before} and {after}")
        for chain, before in self.chains.items():
            gone = set(before) - set(chains.get(chain, []))
            if gone and not (self.world.surgery and all(_given_up(piece, chains[chain]) for piece in gone)):
                self._fail("I3 immutable", f"chain {chain}: {gone} became {chains.get(chain)}")
        self.chains = chains

    def _check_runs(self) -> None:
        runs = {row[0]: row for row in self.world.sql.execute(RUNS).fetchall()}
        for key, row in self.runs.items():
            if runs.get(key) != row:
                self._fail("I3 a plan is a function", f"run {row} became {runs.get(key)}")
        self.runs = runs

    def _check_moments(self) -> None:
        """I32: what had come before the time that a run has stored is planned, also of transactions that were open."""
        times = self.world.sql.execute(MOMENTS).fetchall()
        ends: dict[tuple[str, int], int] = {}
        if any(run_key not in self.moments for run_key, *_ in times):
            ends = {(topic_id, partition): end for topic_id, partition, end in self.world.sql.execute(ENDS).fetchall()}
        for run_key, cut_at, up_to, topic, topic_id in times:
            current = self.world.broker.by_name.get(topic)
            if run_key in self.moments or current is None or current.topic_id != topic_id:
                continue  # a topic that is gone has no records
            for partition, log in enumerate(self.world.broker.by_id[topic_id].logs):
                began = self.world.begun.get(run_key) if cut_at else up_to
                stop = log.end if cut_at is None else _first_at(log, up_to)
                for offset in range(max(ends.get((topic_id, partition), 0), log.start), stop):
                    entry = log.entries[offset]
                    is_record = entry.serial is not None and not (
                        entry.transaction and entry.transaction.fate is Fate.ABORTED
                    )
                    if is_record and began is not None and entry.arrived < began:
                        what = f"run {run_key} has stored {up_to}, and offset {offset} of {topic_id}-{partition}"
                        self._fail("I32 moments seen", f"{what}, which was there at {entry.arrived}, is not planned")
        self.moments |= {run_key for run_key, *_ in times}

    def _check_progress(self) -> None:
        """I16: the source's own tools are told of no offset behind one that is not published."""
        rows = self.world.sql.execute(UNDONE).fetchall()
        lowest = {(topic_id, partition): start for topic_id, partition, start in rows}
        for at, told in published_ends(self.world.onlooker()).items() if lowest else ():
            start = lowest.get((at.topic_id, at.partition), told)
            if told > start:
                self._fail("I16 progress", f"{at.name} is told to be published up to {told}, and {start} is not")

    def _check_tokens(self, manifests: list[Manifest]) -> None:
        by_id = {manifest.id: manifest for manifest in manifests}
        for before in self.manifests.values():
            now = by_id[before.id]
            if now.attempt < before.attempt:
                self._fail("I7 tokens grow", f"manifest {now.id}: {before.attempt} to {now.attempt}")
            if (now.published_attempt or 0) < (before.published_attempt or 0):
                self._fail("I7 publications grow", f"manifest {now.id}: {before.publications} to {now.publications}")
            if before.state is ManifestState.DONE is not now.state:
                self._fail("I6 done stays done", f"manifest {now.id}: {now.state}")
            if before.publications and before.ranges != now.ranges:
                self._fail("I3 what is published keeps its ranges", f"manifest {now.id}: {now.ranges}")
        self.manifests = by_id

    # readers

    def _check_published(self, manifests: list[Manifest]) -> None:
        objects: dict[tuple[str, int], list[PublishedObject]] = {}
        for manifest, _, published in self.world.database.publications.objects(NAME):
            if published.sink in self.world.lakes:
                objects.setdefault((published.sink, manifest), []).append(published)
        paths = Counter(
            (published.sink, published.path) for of_manifest in objects.values() for published in of_manifest
        )
        if len(paths) != paths.total():
            self._fail("I15 location", f"an object belongs to two manifests: {paths.most_common(1)}")
        records = {
            (publication.sink, manifest.id): str(RecordName(NAME, manifest.id, publication.attempt))
            for manifest in manifests
            for publication in manifest.publications
        }
        states = {
            name: lake.states(
                [
                    *(path for sink, path in paths if sink == name),
                    *(key for (sink, _), key in records.items() if sink == name),
                ]
            )
            for name, lake in self.world.lakes.items()
        }
        for manifest in manifests:
            shown = {publication.sink for publication in manifest.publications}
            lacking = self.world.sink_names() - shown - {*manifest.given_up}
            if manifest.state is ManifestState.DONE and lacking:
                self._fail("I8 done has evidence", f"manifest {manifest.id} is done, and {lacking} lack it")
            for publication in manifest.publications:
                if publication.sink not in self.world.lakes:
                    continue
                there = states[publication.sink]
                self._check_record(publication, records[publication.sink, manifest.id], there)
                self._check_whole(manifest, publication, objects.get((publication.sink, manifest.id), []), there)

    def _check_record(self, publication: Publication, key: str, states: Mapping[str, object]) -> None:
        if key not in states:
            self._fail("I8 done has evidence", f"{publication.sink}: {key} is missing")
        state, digest = self.digests.get((publication.sink, key), (None, ""))
        if state != states[key]:
            digest = json.loads(self.world.lakes[publication.sink].content(key))["digest"]
            self.digests[publication.sink, key] = states[key], digest
        if digest != publication.digest:
            self._fail("I8 done has evidence", f"{publication.sink}: {key} has {digest}, not {publication.digest}")

    def _check_whole(
        self, manifest: Manifest, publication: Publication, objects: list[PublishedObject],
        states: Mapping[str, object],
    ) -> None:  # fmt: skip
        """I10, I11, I13: exactly the records that were visible in its ranges, each once and unchanged."""
        lake = self.world.lakes[publication.sink]
        state = [(published.path, states.get(published.path)) for published in objects]
        missing = [path for path, there in state if there is None]
        if missing:
            self.world.reached["rows missing"] += sum(
                published.rows for published in objects if published.path in missing
            )
            self._fail("I11 whole", f"manifest {manifest.id}: {missing} is missing")
        key = (publication.sink, manifest.id, publication.attempt)
        if self.read.get(key) == state:
            return
        rows = Counter(row for published in objects for row in _rows(lake, published.path, published.kind))
        self._check_once(manifest, publication.sink, {row[:3]: row[3] for row in rows})
        for covered in manifest.ranges:
            ever = self.world.broker.log(covered.at).ever()
            for offset in range(covered.start, covered.end):
                self._check_offset(manifest, covered, offset, rows, ever.get(offset, []))
        if rows:
            self._fail("I13 bounds", f"manifest {manifest.id}: rows of other ranges or of no record: {rows}")
        self.read[key] = state

    def _check_once(self, manifest: Manifest, sink: str, serials: dict[Place, int]) -> None:
        """I10: in a sink only one manifest has a record, by its serial number."""
        self.serials[sink, manifest.id] = serials
        for (where, other), shown in self.serials.items():
            others = where == sink and other != manifest.id
            if others and (twice := set(shown.values()) & set(serials.values())):
                self.world.reached["rows twice"] += len(twice)
                self._fail("I10 nothing twice", f"manifests {other} and {manifest.id} both show records {twice}")

    def _check_offset(
        self, manifest: Manifest, covered: Range, offset: int, rows: Counter[tuple[str, int, int, int]],
        ever: list[Entry],
    ) -> None:  # fmt: skip
        place = (covered.at.topic, covered.at.partition, offset)
        matches = [(row, times) for row, times in rows.items() if row[:3] == place]
        for row, _ in matches:
            del rows[row]
        where = f"manifest {manifest.id} attempt {manifest.published_attempt}: {place}"
        times = sum(times for _, times in matches)
        if times > 1:
            self.world.reached["rows twice"] += times - 1
            self._fail("I10 nothing twice", f"{where} is there {times} times")
        if ever and all(entry.visible for entry in ever) and not times:
            self.world.reached["rows missing"] += 1
            self._fail("I10 nothing missing", f"{where} is not there")
        if times and not any(entry.visible and entry.serial == matches[0][0][3] for entry in ever):
            self._fail("I10 only what is visible", f"{where} holds record {matches[0][0][3]}, Kafka had {ever}")

    def _check_other(self, other: OtherSink, manifests: list[Manifest]) -> None:
        """I10, I11, I16: the other sink shows each manifest that left evidence whole, once, in order, and no more."""
        sink = self._sink(other)
        half, newest = other.half(), sink.ledger.evidence()
        records = {id_: self._content(sink, id_, attempt) for id_, attempt in newest.items()}
        for manifest in manifests:
            publication = manifest.published(other.name)
            if publication is None:
                continue
            attempt, record = newest.get(manifest.id, 0), records.get(manifest.id, {})
            if attempt < publication.attempt:
                self._fail("I8 done has evidence", f"{other.name}: manifest {manifest.id} has that of {attempt} only")
            if attempt == publication.attempt and record["digest"] != publication.digest:
                self._fail("I8 done has evidence", f"{other.name}: {record['digest']}, not {publication.digest}")
        covering: dict[tuple[TopicPartition, int], list[int]] = {}  # two manifests where a truncation was in between
        for id_ in newest.keys() - half:
            for covered in map(range_from, records[id_]["ranges"]):
                for offset in range(covered.start, covered.end):
                    covering.setdefault((covered.at, offset), []).append(id_)
        if gone := other.gone():
            self._fail("I11 whole", f"{other.name}: readers of what is kept there miss {gone}")
        seen = other.seen()
        ever = {at: self.world.broker.log(at).ever() for at in {at for at, _ in covering}}
        for (at, offset), ids in covering.items():
            where = f"{other.name}: {at.topic}-{at.partition} offset {offset} of manifests {ids}"
            self._check_seen(where, len(ids), seen, ever[at].get(offset, []))
        if +seen:
            self._fail("I10 only what is visible", f"{other.name}: records {seen} of no manifest with evidence")
        self._check_streams(other)

    def _check_streams(self, other: OtherSink) -> None:
        """I16: a later record of a log has a higher serial number, in whichever of its generations."""
        for stream in other.streams():
            if stream != sorted(stream):
                self._fail("I16 order of a key", f"{other.name}: records came as {stream}")

    def _content(self, sink: Sink, manifest: int, attempt: int) -> dict[str, Any]:
        """A record of another sink, read once: an attempt has one, and of a topic each takes a tenth of a second."""
        key = (sink.name, manifest, attempt)
        if key not in self.contents:
            self.contents[key] = sink.ledger.record(RecordName(NAME, manifest, attempt)) or {}
        return self.contents[key]

    def _sink(self, other: OtherSink) -> Sink:
        return next(candidate for candidate in self.world.onlooker().sinks if candidate.name == other.name)

    def wrong(self) -> str | None:
        """What other sinks show and should not, or lack of what is published; None when all is right."""
        counted = self.world.reached.copy()
        manifests = self.world.database.manifests.find(NAME)
        try:
            for other in self.world.others:
                self._check_other(other, manifests)
        except Violated as violated:
            self.world.reached.clear()
            self.world.reached.update(counted)  # it is not Tidemark that has brought this about
            return str(violated)
        return None

    def _check_dead(self, other: OtherSink) -> None:
        """I10: every record that cannot be decoded is a dead letter of the manifest that covers it, once."""
        sink = self._sink(other)
        for manifest in self.manifests.values():
            publication = manifest.published(other.name)
            receipt = publication and self.world.database.attempts.receipt(manifest.id, publication.attempt)
            if receipt is None:
                continue
            letters: Counter[int] = Counter()
            try:
                for letter in sink.output.dead_letters(receipt, values=True):
                    letters[int((letter.value or b"").split()[1])] += 1
            except OSError as error:
                self._fail("I10 nothing missing", f"{other.name}: dead letters of manifest {manifest.id}: {error}")
            for covered in manifest.ranges:
                ever = self.world.broker.log(covered.at).ever()
                for offset in range(covered.start, covered.end):
                    where = f"{other.name}: dead letter of {covered.at.name} offset {offset}"
                    self._check_seen(where, 1, letters, ever.get(offset, []), bad=True)
            if +letters:
                self._fail(
                    "I10 only what is visible", f"{other.name}: dead letters {letters} of manifest {manifest.id}"
                )

    def _check_seen(
        self, where: str, manifests: int, seen: Counter[int], ever: list[Entry], *, bad: bool = False
    ) -> None:
        """Take what so many manifests show of an offset out of ``seen``: each of them another of the ``ever``, with
        ``bad`` of those that cannot be decoded."""
        good = [entry.serial for entry in ever if entry.serial is not None and entry.visible and entry.bad == bad]
        shown = {serial: seen.pop(serial) for serial in good if seen[serial]}
        if max(shown.values(), default=1) > 1 or len(shown) > manifests:
            self.world.reached["rows twice"] += 1
            self._fail("I10 nothing twice", f"{where} is there as {shown}")
        if len(good) == len(ever) and len(shown) < min(manifests, len(ever)):
            self.world.reached["rows missing"] += 1
            self._fail("I10 nothing missing", f"{where} is there as {shown} only")

    def refusal_due(self) -> str | None:
        """Why the next plan must be refused; None when it must not."""
        for chain in self.world.database.chains.of_pipeline(NAME):
            if chain.at.topic not in self.world.topics:
                continue
            log = self.world.broker.log(chain.at)
            here = f"{chain.at.topic}-{chain.at.partition}"
            if chain.blocked:
                return f"{here}: {chain.blocked}"
            if self.world.broker.by_name[chain.at.topic].topic_id != chain.at.topic_id:
                return f"{here} was recreated"
            if log.end < chain.end or self._is_other(chain, log):
                return f"{here} was truncated"
            if log.start > chain.end and self.world.settings.on_data_loss == "fail":
                return f"{here} lost records"
        return None

    def _is_other(self, chain: Chain, log: Log) -> bool:
        """Whether the log has another record than the last published one of it, over all its generations: of an earlier
        one what lies below the later ones."""
        place = (chain.at.topic_id, chain.at.partition)
        anchors = self.world.sql.execute(ANCHORS, [*place]).fetchall()
        shown: dict[int, int] = {}
        for manifest, serials in self._published_anywhere():
            for covered in self.manifests[manifest].ranges:
                above = [anchor for generation, anchor in anchors if generation > covered.generation]
                stop = min([covered.end, *above])
                if (covered.at.topic_id, covered.at.partition) == place:
                    where = (covered.at.topic, covered.at.partition)
                    shown |= {at[2]: serial for at, serial in serials.items()
                              if at[:2] == where and covered.start <= at[2] < stop}  # fmt: skip
        last = max(shown, default=-1)
        return last >= log.start and (last >= log.end or log.entries[last].serial != shown[last])

    def _published_anywhere(self) -> Iterator[tuple[int, dict[Place, int]]]:
        """(manifest, serial numbers by place) of what any sink shows: of a lake as it was read there, and of what only
        the other sink has, as the attempt staged it."""
        in_lakes = {manifest for _, manifest in self.serials}
        for (_, manifest), serials in self.serials.items():
            yield manifest, serials
        for manifest in self.manifests.values():
            if manifest.publications and manifest.id not in in_lakes:
                yield manifest.id, self.world.staged.get((manifest.id, manifest.publications[0].attempt), {})

    def refused(self) -> tuple[str, int, int | None] | None:
        """The first chain whose planning is refused: topic, partition, and the end of its log if it was truncated."""
        chains = self.world.database.chains.of_pipeline(NAME)
        return next(
            ((chain.at.topic, chain.at.partition, chain.blocked_end) for chain in chains if chain.blocked), None
        )

    # in the end

    def check_quiet(self) -> None:
        """At the end, after all faults and retries: all is done, the audit finds no difference, staging is empty."""
        self.puts = -1
        self.contents.clear()
        self.check()
        for manifest in self.manifests.values():
            if manifest.state is not ManifestState.DONE and not self.rightly_blocked(manifest):
                self._fail("I24 progress", f"manifest {manifest.id} is {manifest.state}: {manifest.reason}")
        differences = [str(difference) for difference in audit(self.world.onlooker(), deep=True)]
        if differences:
            self._fail("the audit", "; ".join(differences))
        blocked = {
            f"{manifest_staging(manifest.id)}/"
            for manifest in self.manifests.values()
            if manifest.state is ManifestState.BLOCKED  # what a clean-up left that failed goes when it is done
        }
        for sink, lake in self.world.lakes.items():
            left = [key for key in lake.staged() if not key.startswith(tuple(blocked))]
            if left:
                self._fail("I23 nothing is left over", f"{sink}: staging {left}")
            self._check_listing(sink, lake)
            self._check_everything(sink)
        for other in self.world.others:
            if half := other.half():
                self._fail("I11 whole", f"{other.name}: manifests {half} are half there")
            self._check_dead(other)

    def rightly_blocked(self, manifest: Manifest) -> bool:
        """Whether ``gaps: none`` is set and an offset of the manifest has no visible record."""
        logs = [(covered, self.world.broker.log(covered.at).ever()) for covered in manifest.ranges]
        gap = any(
            not all(entry.visible for entry in ever.get(offset, []))
            for covered, ever in logs
            for offset in range(covered.start, covered.end)
        )
        return manifest.state is ManifestState.BLOCKED and self.world.settings.gaps == "none" and gap

    def _check_listing(self, sink: str, lake: Lake) -> None:
        """I8, I11: readers of folders and of records see the same as the exact reader."""
        objects = self.world.database.publications.objects(NAME)
        published = {shown.path for _, _, shown in objects if shown.sink == sink}
        listed = {key for key in lake.files() if key.endswith(".parquet") and not _hidden(key)}
        if listed != published:
            self._fail("I11 listing readers", f"{sink}: they see {sorted(listed ^ published)} otherwise")
        records = {PurePath(key).stem for key in lake.files(f"_manifests/{NAME}/") if key.endswith(".json")}
        publications = {manifest.id: manifest.published(sink) for manifest in self.manifests.values()}
        newest = {f"{manifest:010d}.{shown.attempt:04d}" for manifest, shown in publications.items() if shown}
        if records != newest:
            self._fail("I8 record readers", f"{sink}: they see {sorted(records ^ newest)} otherwise")

    def _check_everything(self, sink: str) -> None:
        """I10, I22: every record that Kafka still has is shown, or has a reason why not."""
        pieces = self._pieces()
        shown = {serial for (where, _), each in self.serials.items() if where == sink for serial in each.values()}
        for topic in self.world.topics:
            for partition, log in enumerate(self.world.broker.by_name[topic].logs):
                place = (self.world.broker.by_name[topic].topic_id, partition)
                end = max((piece[1] for piece in pieces.get(place, [])), default=0)
                if end < log.last_stable:
                    self._fail("I24 progress", f"{topic}-{partition} is planned up to {end} of {log.last_stable}")
                for offset in range(log.start, log.last_stable):
                    entry = log.entries[offset]
                    if entry.visible and entry.serial not in shown and not self._excused(sink, offset, pieces[place]):
                        self.world.reached["rows missing"] += 1
                        self._fail("I22 never silent", f"{topic}-{partition} offset {offset} was never planned")

    def shows(self, sink: str, key: str) -> bool:
        """Whether the sink shows all records of a file that belongs to no manifest."""
        kind = ObjectKind.DEAD_LETTER if "_dead_letters" in key else ObjectKind.DATA
        shown = {serial for (where, _), each in self.serials.items() if where == sink for serial in each.values()}
        return {row[3] for row in _rows(self.world.lakes[sink], key, kind)} <= shown

    def _pieces(self) -> dict[tuple[str, int], list[Piece]]:
        pieces: dict[tuple[str, int], list[Piece]] = {}
        for _, _, topic_id, partition, *piece in self.world.sql.execute(CHAINS).fetchall():
            pieces.setdefault((topic_id, partition), []).append(tuple(piece))
        return pieces

    def _excused(self, sink: str, offset: int, pieces: Iterable[Piece]) -> bool:
        """Whether an offset is in a range that is not published, or that this sink goes without by a decision, or
        before every anchor of ``latest``.

        A lost range does not count, since Kafka still has the record.
        """
        without = {row[0] for row in self.world.sql.execute(WITHOUT, [sink]).fetchall()}
        waits = any(
            start is not None
            and start <= offset < end
            and manifest
            and (not self.manifests[manifest].publications or manifest in without)
            for start, end, _, manifest in pieces
        )
        anchors = [end for start, end, _, _ in pieces if start is None]
        return waits or (
            all(offset < anchor for anchor in anchors) and self.world.settings.starting_offsets == "latest"
        )


def _given_up(piece: Piece, now: list[Piece]) -> bool:
    """Whether the same offsets are now ranges of kind lost, and of kind data of the same manifest."""
    start, end, kind, manifest = piece
    if start is None or kind != "data":
        return False
    inside = [newer for newer in now if newer[0] is not None and start <= newer[0] and newer[1] <= end]
    kinds = all(newer[2] == "lost" or (newer[2] == "data" and newer[3] == manifest) for newer in inside)
    return kinds and sum(newer[1] - (newer[0] or 0) for newer in inside) == end - start


def _first_at(log: Log, when: datetime) -> int:
    """The first offset with a timestamp at or after a time; the end of the log without one."""
    stamped = (at for at, entry in enumerate(log.entries) if at >= log.start and entry.stamp >= when)
    return next(stamped, log.end)


def _hidden(key: str) -> bool:
    return any(part.startswith((".", "_")) and part != "_dead_letters" for part in PurePath(key).parts)


def _rows(lake: Lake, key: str, kind: ObjectKind) -> list[tuple[str, int, int, int]]:
    """(topic, partition, offset, serial number) of each row of a file."""
    data = kind is ObjectKind.DATA
    names = ["_topic", "_partition", "_offset", "n" if data else "_value"]
    table = pq.ParquetFile(BytesIO(lake.content(key))).read(columns=names)
    columns = [table[name].to_pylist() for name in names]
    if not data:
        columns[3] = [int(value.split()[1]) for value in columns[3]]
    return list(zip(*columns, strict=True))
