"""What every kind of sink promises to the process that publishes; a new kind must bring an example."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import batch, pipeline
from tidemark.batch import BatchProcessor
from tidemark.decoders.raw import HEADERS
from tidemark.errors import Fenced, ForeignLake
from tidemark.model import Order, Receipt, SinkOrder, receipt_of_tasks
from tidemark.offsets import Range, TopicPartition
from tidemark.pipeline import FilesSinkConfig, SinkConfig, SinkKind
from tidemark.sections import Surroundings
from tidemark.sinks.files import FilesSink
from tidemark.sinks.registry import open_sink

DATABASE = "a-database"
AT = TopicPartition("orders", "topic-id", 0)
RANGES = (Range(AT, 10, 40),)


def files(folder: Path) -> SinkConfig:
    return FilesSinkConfig.model_validate({"root": str(folder)}, context=Surroundings(folder, folder))


EXAMPLES: dict[SinkKind, Callable[[Path], SinkConfig]] = {SinkKind.FILES: files}


def test_every_kind_of_sink_has_an_example_a_writer_and_a_publisher() -> None:
    assert set(EXAMPLES) == set(SinkKind)
    assert {one.value for one in SinkKind} == {one.value for one in batch.SinkKind}
    assert {config.kind for config in (make(Path("/lake")) for make in EXAMPLES.values())} == set(SinkKind)
    assert set(pipeline.SinkEntry.model_fields) == {one.value for one in SinkKind}


@pytest.fixture(params=list(EXAMPLES), ids=str)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> SinkConfig:
    return EXAMPLES[request.param](tmp_path / "lake")


@pytest.fixture
def sink(config: SinkConfig) -> FilesSink:
    return open_sink("demo", config)


@pytest.fixture
def staged(config: SinkConfig) -> Callable[..., Receipt]:
    return partial(stage, config)


def stage(config: SinkConfig, attempt: int, *, manifest: int = 1, also: str = "") -> Receipt:
    """Thirty records over three hours, every tenth undecodable, by the code that runs in Spark tasks."""
    sink = SinkOrder(config.name, config.kind.value, {**config.order(), "root": config.root})
    order = Order(
        pipeline="demo", manifest_id=manifest, attempt=attempt, ranges=RANGES, bootstrap_servers="", kafka_options={},
        decode={"format": "json", "schema": "n BIGINT NOT NULL, also STRING"}, event_time={"on_invalid": "fail"},
        on_error="dead_letter", sinks=(sink,),
    )  # fmt: skip
    return receipt_of_tasks(order, [BatchProcessor(order).process("00000-0", [records(also)])])


def records(also: str) -> pa.RecordBatch:
    offsets = range(RANGES[0].start, RANGES[0].end)
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * len(offsets)),
            "value": pa.array([value(at, also) for at in offsets], pa.binary()),
            "topic": pa.array([AT.topic] * len(offsets)),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([noon + timedelta(minutes=4 * at) for at in offsets], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * len(offsets), pa.int32()),
            "headers": pa.array([None] * len(offsets), HEADERS),
        }
    )


def value(offset: int, also: str) -> bytes:
    return b"{" if offset % 10 == 0 else b'{"n": %d, "also": "%s"}' % (offset, also.encode())


def agree() -> None:
    """The fence of an attempt that nobody has overtaken."""


class Overtaken:
    """A fence that says no from its ``after``-th question on."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Fenced("a newer attempt is at work")


def contents(sink: FilesSink) -> dict[str, Any]:
    """Every object with its bytes and the moment it was written."""
    found = {key: Path(sink.root, key) for key, _ in sink.store.list()}
    return {key: (path.read_bytes(), path.stat().st_mtime_ns) for key, path in found.items()}


def put(sink: FilesSink, receipt: Receipt, fence: Callable[[], None] = agree) -> None:
    sink.put(receipt, RANGES, DATABASE, fence)


def test_what_was_put_is_held_and_nothing_stays_in_staging(sink: FilesSink, staged: Callable[..., Receipt]) -> None:
    receipt = staged(1)
    counts = receipt.counts(sink.name, RANGES)
    assert (counts.read, counts.written, counts.dead_lettered) == (30, 27, 3)
    put(sink, receipt)
    assert sink.holds(receipt)
    assert sink.recorded_attempt(1) == 1
    assert set(contents(sink)) == {one.path for one in receipt.objects} | {"_manifests/demo/0000000001.0001.json"}


def test_putting_twice_is_putting_once(sink: FilesSink, staged: Callable[..., Receipt]) -> None:
    receipt = staged(1)
    put(sink, receipt)
    before = contents(sink)
    put(sink, receipt)
    objects = {one.path for one in receipt.objects}
    assert {key: one for key, one in contents(sink).items() if key in objects} == {key: before[key] for key in objects}
    assert {key: one[0] for key, one in contents(sink).items()} == {key: one[0] for key, one in before.items()}


def test_a_put_that_died_halfway_is_finished_by_repeating_it(sink: FilesSink, staged: Callable[..., Receipt]) -> None:
    receipt = staged(1)
    first = receipt.objects[0]
    sink.store.move(first.staged, first.path, first.bytes)
    put(sink, receipt)
    assert sink.holds(receipt)


def test_two_attempts_share_no_object(staged: Callable[..., Receipt]) -> None:
    first, second = staged(1), staged(2)
    assert first.digest("files") == second.digest("files")
    assert not {one.path for one in first.objects} & {one.path for one in second.objects}


def test_the_same_rows_have_the_same_digest_and_other_rows_another(staged: Callable[..., Receipt]) -> None:
    assert staged(1).digest("files") == staged(2).digest("files") != staged(3, also="x").digest("files")


def test_discard_removes_only_its_own(sink: FilesSink, staged: Callable[..., Receipt]) -> None:
    kept, other_manifest = staged(1), staged(1, manifest=2)
    put(sink, kept)
    put(sink, other_manifest)
    before = contents(sink)
    unpublished = staged(2, also="mended")
    put(sink, unpublished)
    still_staged = staged(3)
    sink.discard(unpublished)
    assert contents(sink).keys() == before.keys() | {one.staged for one in still_staged.objects}
    sink.discard(still_staged)
    assert contents(sink) == before
    assert sink.store.folders("_staging/0000000001") == ["0001"]  # empty, and not of a discarded attempt


def test_discarding_twice_or_what_was_never_put_is_no_error(sink: FilesSink, staged: Callable[..., Receipt]) -> None:
    receipt = staged(1)
    sink.discard(receipt)
    sink.discard(receipt)
    assert contents(sink) == {}


@pytest.mark.parametrize("questions", range(5))
def test_fenced_before_the_record_an_attempt_takes_back_its_own(
    sink: FilesSink, staged: Callable[..., Receipt], questions: int
) -> None:
    newer = staged(2)
    put(sink, newer)
    before = contents(sink)
    late = staged(1)
    assert len(late.objects) + 1 == 5  # one question per object and one before the record
    with pytest.raises(Fenced):
        put(sink, late, Overtaken(questions))
    assert contents(sink) == before
    assert sink.holds(newer)


def known(sink: FilesSink, receipt: Receipt) -> tuple[bool, bool, bool]:
    return sink.has_record(receipt), sink.holds(receipt), sink.intact(receipt)


def test_what_is_known_of_an_attempt_needs_its_record_its_objects_and_their_rows(
    sink: FilesSink, staged: Callable[..., Receipt]
) -> None:
    receipt = staged(1)
    record = "_manifests/demo/0000000001.0001.json"
    truth = {}
    truth["nothing put"] = known(sink, receipt)
    put(sink, receipt)
    truth["put"] = known(sink, receipt)
    said = sink.store.get(record) or b""
    for damage, content in (("no json", b"{"), ("a list", b"[]"), ("other rows", said.replace(b'"digest"', b'"was"'))):
        sink.store.put(record, content)
        truth[damage] = known(sink, receipt)
    sink.store.delete([record])
    truth["no record"] = known(sink, receipt)
    sink.store.put(record, said)
    path = receipt.objects[0].path
    whole = sink.store.get(path) or b""
    sink.store.put(path, whole[:-1])
    truth["truncated"] = known(sink, receipt)
    sink.store.put(path, whole[:-4] + b"PAR2")
    truth["garbage of its size"] = known(sink, receipt)
    sink.store.delete([path])
    truth["object gone"] = known(sink, receipt)
    sink.store.put(path, whole)
    truth["mended"] = known(sink, receipt)
    assert truth == {
        "nothing put": (False, False, False),
        "put": (True, True, True),
        "no json": (False, False, False),
        "a list": (False, False, False),
        "other rows": (False, False, False),
        "no record": (False, False, False),
        "truncated": (True, False, False),
        "garbage of its size": (True, True, False),
        "object gone": (True, False, False),
        "mended": (True, True, True),
    }


def test_the_record_of_one_attempt_says_nothing_of_another(sink: FilesSink, staged: Callable[..., Receipt]) -> None:
    first, second = staged(1), staged(2)
    put(sink, first)
    assert not sink.has_record(second)
    put(sink, second)
    assert sink.recorded_attempt(1) == 2
    assert sink.recorded_attempt(2) is None
    assert sink.highest_record() == 1


def test_a_receipt_survives_json_unchanged(staged: Callable[..., Receipt]) -> None:
    receipt = staged(1)
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert Receipt.from_raw(asdict(receipt)) == receipt


def test_a_root_is_claimed_by_one_database_for_good(sink: FilesSink) -> None:
    sink.claim(DATABASE)
    sink.claim(DATABASE)
    with pytest.raises(ForeignLake, match="another-database"):
        sink.claim("another-database")
    sink.claim(DATABASE)
