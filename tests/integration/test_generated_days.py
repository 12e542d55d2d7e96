"""Days with known lateness, drawn at random, in a real manifest database: hours are never complete too early.

Records, cuts, the order of publications, replays, and DAG runs that fail are drawn. The expected state is computed from
the records alone, and Airflow is played by the rule of its pending runs: a run of the day starts as soon as each hour
was told since the last start.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.unit.pipeline_text import changed
from tidemark.config.base import LoadContext
from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.hours import close_hours, hours_to_tell
from tidemark.model.event_hours import HOUR, key
from tidemark.model.manifest import AttemptState, RangeKind, RunKind
from tidemark.model.offsets import TopicPartition
from tidemark.model.receipt import Receipt
from tidemark.pipeline.settings import Pipeline

pytestmark = pytest.mark.thorough

START = datetime(2024, 3, 1, tzinfo=UTC)
DAY = [START + number * HOUR for number in range(24)]
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Record:
    event: datetime
    arrival: datetime

    @property
    def hour(self) -> datetime:
        return self.event.replace(minute=0)


@dataclass
class Manifest:
    id: int
    run: int
    records: list[Record]
    published: bool = False
    replay: int | None = None  # the attempt of a replay at work, which has stored its receipt


@dataclass
class Airflow:
    """What a DAG that waits for the 24 hours of a day sees."""

    pending: set[str] = field(default_factory=set)
    runs: list[dict[datetime, int]] = field(default_factory=list)  # the revisions of the hours at each start

    def tell(self, keys: list[str], revisions: dict[datetime, int]) -> bool:
        """Whether a run of the day starts."""
        self.pending |= {*keys} & {*map(key, DAY)}
        if self.pending != {*map(key, DAY)}:
            return False
        self.pending = set()
        self.runs.append({hour: revisions[hour] for hour in DAY})
        return True


class GeneratedDay:
    """One pipeline with its day; ``check`` after each step."""

    def __init__(self, seed: int, closer: ManifestDatabase, worker: ManifestDatabase) -> None:
        self.dice = random.Random(seed)
        self.closer, self.worker = closer, worker
        self.name = f"day{seed}"
        self.lateness = timedelta(minutes=self.dice.choice([0, 30, 90]))
        self.records = [self._record() for _ in range(self.dice.randint(3, 30))]
        self.planned: set[Record] = set()
        self.cuts: list[datetime] = []
        self.manifests: list[Manifest] = []
        self.offset = 0
        self.closings: Counter[datetime] = Counter()
        self.reopenings: Counter[datetime] = Counter()
        self.complete: set[datetime] = set()
        self.airflow = Airflow()
        self.dag_runs: dict[str, bool | None] = {}
        self.context = self._context()
        with closer.transaction():
            closer.pipelines.remember(self.name, {"files": "a lake"})
            place = TopicPartition("t", f"id of {self.name}", 0)
            self.chain = closer.chains.insert(self.name, [place])[place]
            closer.ranges.insert(RangeKind.ANCHOR, [(self.chain, None, 0, None)])

    def _record(self) -> Record:
        event = START + self.dice.randrange(24 * 60) * MINUTE
        late = self.dice.random() < 0.2
        delay = self.dice.randint(1, 36 * 60) if late else self.dice.uniform(0, 1) * (self.lateness / MINUTE)
        return Record(event, event + int(delay) * MINUTE)

    def _context(self) -> Context:
        pipeline = changed(("pipeline: flights", f"pipeline: {self.name}"))
        text = pipeline.replace("  field: at", f"  field: at\n  allowed_lateness: {self.lateness // MINUTE}m")
        settings = Pipeline.model_validate(yaml.safe_load(text), context=LoadContext(Path("/"), Path("/")))
        return Context(settings, self.closer, cast("Any", None), ())

    # steps

    def plan(self, cut: datetime) -> None:
        new = [record for record in self.records if record.arrival < cut and record not in self.planned]
        self.dice.shuffle(new)
        slices = [piece for piece in (new[0::2], new[1::2]) if piece] if self.dice.random() < 0.5 else [new][: len(new)]
        with self.closer.transaction():
            run = self.closer.runs.insert(
                self.name, cut.isoformat(), RunKind.MANUAL, cut_at=cut, planned_up_to=cut, reached=True,
                covered_by=[], notes=[],
            )  # fmt: skip
            for id_, records in zip(self.closer.manifests.insert(run, self.name, len(slices)), slices, strict=True):
                end = self.offset + len(records)
                self.closer.ranges.insert(RangeKind.DATA, [(self.chain, self.offset, end, id_)])
                self.manifests.append(Manifest(id_, len(self.cuts), records))
                self.offset = end
            self.closer.runs.insert_ends(run, {self.chain: self.offset})
        self.cuts.append(cut)
        self.planned |= set(new)

    def receipt(self, manifest: Manifest) -> int:
        """Start an attempt and store its receipt."""
        hours: dict[str, list[int]] = {}
        for record in manifest.records:
            counts = hours.setdefault(record.hour.isoformat()[:13], [0, 0])
            counts[0] += 1
            counts[1] += record.arrival - record.event > self.lateness
        attempt = self.worker.attempts.start(manifest.id, "fingerprint")
        assert attempt is not None
        receipt = Receipt(manifest.id, attempt, ("files",), (), (), hours)
        assert self.worker.attempts.store_receipt(receipt, asdict(receipt), ["files"], ["files"])
        return attempt

    def publish(self, manifest: Manifest, attempt: int) -> None:
        with self.worker.transaction():
            assert self.worker.publications.publish(manifest.id, attempt, "files", attempt, "digest", {})
            assert self.worker.attempts.finish(manifest.id, attempt, ["files"])
            self.worker.attempts.end(manifest.id, attempt, AttemptState.PUBLISHED)
        self.worker.attempts.release(manifest.id, attempt)
        manifest.published, manifest.replay = True, None

    def work(self) -> None:
        """Publish a manifest that is not, or go on with a replay: it begins, dies, or publishes."""
        manifest = self.dice.choice(self.manifests) if self.manifests else None
        if manifest is None:
            return
        if not manifest.published:
            self.publish(manifest, self.receipt(manifest))
        elif manifest.replay is None:
            if self.dice.random() < 0.3:
                manifest.replay = self.receipt(manifest)
        elif self.dice.random() < 0.3:
            self.worker.attempts.release(manifest.id, manifest.replay)  # its process has died
            manifest.replay = None
        else:
            self.publish(manifest, manifest.replay)

    def close(self, dag_run: str) -> None:
        """The task ``close`` of a DAG run; it may fail after its transaction, and the run with it."""
        closed = close_hours(self.context)
        self.closings.update(closed)
        self.check(closed=True)
        keys = hours_to_tell(self.context, dag_run, self.dag_runs.get)
        ends_well = self.dice.random() < 0.8
        if not ends_well and self.dice.random() < 0.5:
            keys, ends_well = hours_to_tell(self.context, dag_run, self.dag_runs.get), True  # the second try
        self.dag_runs[dag_run] = ends_well
        if ends_well and self.airflow.tell(keys, self.revisions()):
            assert self.complete >= {*DAY}, "a run of the day started early"

    def revisions(self) -> dict[datetime, int]:
        return {row["hour"]: row["revision"] for row in self.closer.hours.find(self.name)}

    # what must hold

    def check(self, *, closed: bool = False) -> None:
        rows = self.closer.hours.find(self.name)
        now = {row["hour"] for row in rows if row["complete_at"]}
        self.reopenings.update(self.complete - now)
        assert closed or now <= self.complete, "only a close completes hours"
        self.complete = now
        published = [record for manifest in self.manifests if manifest.published for record in manifest.records]
        for row in rows:
            hour = row["hour"]
            of_the_hour = [record for record in published if record.hour == hour]
            late = sum(record.arrival - record.event > self.lateness for record in of_the_hour)
            assert (row["rows"], row["late"]) == (len(of_the_hour), late)
            assert row["revision"] == self.closings[hour] == self.reopenings[hour] + (hour in now)
            on_time = [
                record
                for record in self.records
                if record.hour == hour and record.arrival - record.event <= self.lateness
            ]
            assert hour not in now or all(record in published for record in on_time), "complete without its records"
        if closed:
            assert now == {row["hour"] for row in rows if self.may_be_complete(row["hour"])}

    def may_be_complete(self, hour: datetime) -> bool:
        unpublished = min(
            (manifest.run for manifest in self.manifests if not manifest.published), default=len(self.cuts)
        )
        cut = max(self.cuts[:unpublished], default=None)
        if any(
            manifest.replay and any(record.hour == hour for record in manifest.records) for manifest in self.manifests
        ):
            return False
        return cut is not None and cut >= hour + HOUR + self.lateness


def live(seed: int, closer: ManifestDatabase, worker: ManifestDatabase) -> GeneratedDay:
    """A whole day, until everything has arrived and is published."""
    day = GeneratedDay(seed, closer, worker)
    step = timedelta(minutes=day.dice.choice([60, 180, 360]))
    cut, end = START + step, START + timedelta(hours=24 + 36 + 3)
    while cut < end:
        day.plan(cut)
        for _ in range(day.dice.randint(0, 4)):
            day.work()
            day.check()
        if day.dice.random() < 0.8:
            day.close(cut.isoformat())
        cut += step
    day.plan(cut)
    for manifest in day.manifests:
        if manifest.replay is not None:
            day.publish(manifest, manifest.replay)
        elif not manifest.published:
            day.publish(manifest, day.receipt(manifest))
    day.check()
    number = 0
    while number == 0 or not day.dag_runs[f"the end {number}"]:  # what a failed run did not tell the next one tells
        number += 1
        day.close(f"the end {number}")
    assert {*DAY} <= day.complete
    revisions = day.revisions()
    assert day.airflow.runs[-1:] == [{hour: revisions[hour] for hour in DAY}], "the last revisions start a run"
    assert all(before != after for before, after in pairwise(day.airflow.runs)), "each run has news"
    return day


@pytest.fixture
def connections(database: str) -> Iterator[tuple[ManifestDatabase, ManifestDatabase]]:
    with ExitStack() as stack:
        yield tuple(stack.enter_context(ManifestDatabase(database, "test")) for _ in range(2))  # type: ignore[misc]


TWENTIES = [pytest.param(range(first, first + 20), marks=pytest.mark.exhaustive) for first in range(12, 72, 20)]


@pytest.mark.parametrize("days", [range(12), *TWENTIES], ids=str)
def test_no_hour_is_complete_early_and_every_closing_is_a_revision(
    connections: tuple[ManifestDatabase, ManifestDatabase], days: range
) -> None:
    seen: Counter[str] = Counter()
    for seed in days:
        day = live(seed, *connections)
        seen["closings"] += day.closings.total()
        seen["reopenings"] += day.reopenings.total()
        seen["runs of a day"] += len(day.airflow.runs)
    assert seen["reopenings"] > len(days)
    assert seen["closings"] > 24 * len(days)
    assert seen["runs of a day"] > len(days)
