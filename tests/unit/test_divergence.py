"""A log that was cut is told from one that only went on, and the cut is found, against the model broker."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.model_broker import Fate, Log, ModelBroker, Transaction
from tidemark.errors import Unavailable
from tidemark.lifecycle.logs.divergence import Search, differs
from tidemark.model.digest import record_digest
from tidemark.model.manifest import PublishedRange
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import LastRecord, Record
from tidemark.planner import PartitionState
from tidemark.sources.kafka.settings import Settings

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
AT = TopicPartition("a", "a-1", 0)
RECORD = Record("a", 0, 49, 1_000, b"k", b"v", None, leader_epoch=3)
KNOWN = LastRecord(49, 1_000, record_digest(b"k", b"v"), leader_epoch=3)


@pytest.mark.parametrize(
    ("record", "different"),
    [
        (RECORD, False),
        (replace(RECORD, leader_epoch=None), False),  # a client that does not tell
        (replace(RECORD, leader_epoch=2), False),  # a restored cluster counts leaders from 0; the record is the same
        (replace(RECORD, leader_epoch=4), True),  # written again, as it was
        (replace(RECORD, timestamp_ms=1_001), True),
        (replace(RECORD, value=b"w"), True),
        (replace(RECORD, value=None), True),
        (replace(RECORD, key=None), True),
        (replace(RECORD, key=b"", value=b"kv"), True),
        (replace(RECORD, offset=50), True),
        (None, True),
    ],
)
def test_a_record_is_the_known_one_by_offset_timestamp_content_and_leader(
    record: Record | None, different: bool
) -> None:
    assert differs(KNOWN, record, may_vanish=False) is different


def test_a_record_that_compaction_may_have_taken_says_nothing_by_being_gone() -> None:
    assert not differs(KNOWN, None, may_vanish=True)
    assert not differs(KNOWN, replace(RECORD, offset=50), may_vanish=True)
    assert differs(KNOWN, replace(RECORD, value=b"w"), may_vanish=True)


# the search


def broker() -> tuple[ModelBroker, Log]:
    settings = Settings.model_validate({"bootstrap_servers": ModelBroker.address, "topics": ("a",)})
    source = ModelBroker("demo", settings)
    source.create("a", 1)
    return source, source.log(AT)


def produce(source: ModelBroker, log: Log, count: int) -> None:
    for _ in range(count):
        source.produce(log, NOON + timedelta(seconds=source.serials))


def published(source: ModelBroker, log: Log, ends: Sequence[int], *, epochs: bool = True) -> list[PublishedRange]:
    """Ranges up to each of the ends, as they are read now; those without a record are left out."""
    ranges = []
    for start, end in zip([0, *ends], ends, strict=False):
        seen = [offset for offset in range(start, end) if log.entries[offset].visible]
        if seen:
            record = source.records_from([(AT, seen[-1])])[AT, seen[-1]]
            assert record is not None
            epoch = record.leader_epoch if epochs else None
            last = LastRecord(seen[-1], record.timestamp_ms, record_digest(record.key, record.value), epoch)
            ranges.append(PublishedRange(1, start, end, last))
    return ranges


def state(log: Log) -> PartitionState:
    return PartitionState(AT, log.start, log.last_stable, log.end, log.start)


def first_difference(source: ModelBroker, log: Log, ranges: Sequence[PublishedRange]) -> int | None:
    """As a plan finds it: None when the newest record is still there."""
    search, newest = Search(source, may_vanish=False), ranges[-1]
    answers = source.records_from([(AT, newest.last.offset)])
    if not search.is_other(newest, state(log), answers):
        return None

    def below(end: int) -> PublishedRange | None:
        return max((part for part in ranges if part.end <= end), key=lambda part: part.end, default=None)

    return search.first_difference(newest, state(log), below)


@pytest.mark.parametrize("written", [0, 10, 20, 21, 100], ids="{} written since".format)
@pytest.mark.parametrize("ends", [[50], [25, 50], [30, 50], [10, 20, 31, 40, 50]], ids=str)
def test_cut_from_50_to_30_the_log_differs_from_30_on_whatever_was_written_since(ends: list[int], written: int) -> None:
    source, log = broker()
    produce(source, log, 50)
    ranges = published(source, log, ends)
    log.truncate(30)
    produce(source, log, written)
    assert first_difference(source, log, ranges) == 30


def test_a_log_that_only_went_on_does_not_differ() -> None:
    source, log = broker()
    produce(source, log, 50)
    ranges = published(source, log, [25, 50])
    log.leader_epoch += 1  # another leader, as after a broker's restart
    produce(source, log, 9)
    assert first_difference(source, log, ranges) is None
    log.start = 50  # retention took all that is published
    assert first_difference(source, log, ranges) is None


def test_cut_twice_it_differs_from_the_lower_cut_on() -> None:
    source, log = broker()
    produce(source, log, 50)
    ranges = published(source, log, [20, 50])
    for end in (45, 33):
        log.truncate(end)
        produce(source, log, 60)
    assert first_difference(source, log, ranges) == 33


def test_the_same_records_written_again_are_of_another_leader() -> None:
    source, log = broker()
    produce(source, log, 50)
    ranges = published(source, log, [25, 50])
    again = log.entries[30:]
    log.truncate(30)
    produce(source, log, 1)
    for entry in again[1:]:
        log.append(replace(entry, leader_epoch=log.leader_epoch))
    assert first_difference(source, log, ranges) == 30


def test_without_leader_epochs_it_differs_from_the_start_of_the_range_that_holds_the_cut() -> None:
    source, log = broker()
    produce(source, log, 50)
    ranges = published(source, log, [20, 40, 50], epochs=False)
    log.truncate(30)
    produce(source, log, 30)
    assert first_difference(source, log, ranges) == 20


def test_what_retention_took_meanwhile_is_below_every_difference() -> None:
    source, log = broker()
    produce(source, log, 50)
    ranges = published(source, log, [20, 50])
    log.truncate(30)
    produce(source, log, 30)
    log.start = 40
    assert first_difference(source, log, ranges) == 40


def test_a_search_that_is_not_answered_gives_no_verdict() -> None:
    source, log = broker()
    produce(source, log, 50)
    [part] = published(source, log, [50])
    log.truncate(30)
    shorter = state(log)
    log.start = 30  # retention was quicker than the search
    with pytest.raises(Unavailable, match="a-0 was truncated, and offset 15 could not be read to find out where"):
        Search(source, may_vanish=False).first_difference(part, shorter, lambda _: None)


STEPS = st.lists(st.tuples(st.sampled_from(["records", "committed", "aborted"]), st.integers(1, 4)), max_size=12)


def write(source: ModelBroker, log: Log, steps: list[tuple[str, int]]) -> None:
    for kind, count in steps:
        if kind == "records":
            produce(source, log, count)
            continue
        transaction = Transaction()
        for _ in range(count):
            source.produce(log, NOON + timedelta(seconds=source.serials), transaction=transaction)
        source.finish(log, NOON, transaction, Fate.COMMITTED if kind == "committed" else Fate.ABORTED)


@given(before=STEPS, after=STEPS, cuts=st.lists(st.integers(1, 60), max_size=5), kept=st.integers(0, 60))
def test_any_cut_is_found_at_the_first_offset_without_a_record_that_was_there(
    before: list[tuple[str, int]], after: list[tuple[str, int]], cuts: list[int], kept: int
) -> None:
    source, log = broker()
    write(source, log, [*before, ("records", 1)])
    ranges = published(source, log, sorted({min(cut, log.end) for cut in cuts} | {log.end}))
    log.truncate(min(kept, log.end))
    end = log.end
    write(source, log, after)
    removed = [part for part in ranges if part.last.offset >= end]
    if not removed:
        assert first_difference(source, log, ranges) is None
        return
    kept_records = [at for at in range(removed[0].start, end) if log.entries[at].serial is not None]
    expected = kept_records[-1] + 1 if kept_records else removed[0].start
    assert first_difference(source, log, ranges) == expected
    assert all(entry.serial is None for entry in log.entries[expected:end]), "no record below is read twice"
