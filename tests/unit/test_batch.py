"""One Spark task, without Spark: batches in, Parquet files and a report out, read back by engines that are not ours."""

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.errors import ConfigurationError, TooManyDeadLetters, Unavailable, UndecodableRecord
from tidemark.model.digest import Digest, record_digest, row_digest
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import Order, SinkOrder, SourceOrder
from tidemark.model.receipt import ObjectKind, receipt_of_tasks
from tidemark.model.record_schema import HEADERS
from tidemark.processing import processor as batch_module
from tidemark.processing.processor import DEAD_LETTERS, METADATA, BatchProcessor
from tidemark.sinks.files import writer
from tidemark.sinks.staging import held_rows, partitioned_writer
from tidemark.times.event_time import INSTANT

START = datetime(2013, 1, 1, 10, tzinfo=UTC)
Record = tuple[str, int, int, datetime, bytes | None]  # topic, partition, offset, timestamp, value


def order(root: Path, layout: str = "raw/{stream}/%Y/%m/%d/%H", **changed: Any) -> Order:
    settings: dict[str, Any] = {
        "pipeline_name": "flights",
        "manifest_id": 7,
        "attempt": 2,
        "ranges": (Range(TopicPartition("t", "id", 0), 0, 100), Range(TopicPartition("t", "id", 1), 0, 100)),
        "source": SourceOrder("kafka", {}),
        "decode": {"format": "json", "schema": "id BIGINT NOT NULL, at TIMESTAMP"},
        "event_time": {"field": "at", "allowed_lateness_s": 3600},
        "on_error": "dead_letter",
        "sinks": (
            SinkOrder(
                "files",
                "files",
                {
                    "root": str(root),
                    "layout": layout,
                    "format": "parquet",
                    "compression": "zstd",
                    "max_objects": 10_000,
                    "max_file_rows": 5_000_000,
                    "max_file_bytes": 128 * 2**20,
                    "sort_by": [],
                },
            ),
        ),
    }
    return Order(**{**settings, **changed})


def with_options(order: Order, **options: Any) -> Order:
    """The order with other options of its sink."""
    [sink] = order.sinks
    return replace(order, sinks=(replace(sink, options={**sink.options, **options}),))


def value(number: int, at: datetime) -> bytes:
    return json.dumps({"id": number, "at": at.isoformat()}).encode()


def batch(records: Iterable[Record]) -> pa.RecordBatch:
    """Records as Spark hands them to ``mapInArrow``."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": stamp,
            "value": content,
            "key": b"k%d" % offset,
        }
        for topic, partition, offset, stamp, content in records
    ]
    types = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
    }
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    columns["timestamp"] = pa.array([row["timestamp"] for row in rows], pa.timestamp("us", "Europe/Berlin"))
    columns["timestampType"] = pa.array([0] * len(rows), pa.int32())
    columns["headers"] = pa.array([[{"key": "h", "value": b"1"}]] * len(rows), HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def ten(start: int = 0, count: int = 10, partition: int = 0) -> list[Record]:
    """One record per half hour from 10:00, in Kafka two hours later from the fifth on."""
    return [
        ("t", partition, offset, START + timedelta(minutes=30 * offset, hours=2 * (offset >= 5)),
         value(offset, START + timedelta(minutes=30 * offset)))
        for offset in range(start, start + count)
    ]  # fmt: skip


def staged(root: Path, report: dict[str, Any], kind: str = "data") -> pa.Table:
    folder = root / "_staging/0000000007/0002"
    tables = [pq.ParquetFile(folder / file["staged"]).read() for file in report["parts"] if file["kind"] == kind]
    return pa.concat_tables(tables)


def test_records_become_rows_in_files_by_event_hour(tmp_path: Path) -> None:
    report = BatchProcessor(order(tmp_path)).process("00000-1", [batch(ten())])
    table = staged(tmp_path, report)
    assert table.schema.remove_metadata() == pa.schema(
        [*METADATA, pa.field("id", pa.int64(), nullable=False), pa.field("at", INSTANT)]
    )
    rows = table.sort_by("_offset").to_pylist()
    assert [(row["_offset"], row["id"], row["_key"]) for row in rows] == [(at, at, b"k%d" % at) for at in range(10)]
    assert rows[5]["_timestamp"] == START + timedelta(hours=4, minutes=30)
    assert {(row["_topic"], row["_partition"], row["_manifest_id"]) for row in rows} == {("t", 0, 7)}
    assert [(file["folder"], file["rows"], file["spans"]) for file in report["parts"]] == [
        (f"raw/t/2013/01/01/{hour}", 2, ((0, 2 * at, 2 * at + 1),)) for at, hour in enumerate(range(10, 15))
    ]


def test_the_report_counts_what_was_read_and_made(tmp_path: Path) -> None:
    report = BatchProcessor(order(tmp_path)).process("00000-1", [batch(ten(0, 4)), batch([]), batch(ten(4, 6))])
    assert report["task"] == "00000-1"
    assert report["partitions"] == [
        {
            "topic": "t", "partition": 0, "read": 10, "bytes": 460, "first": 0, "last": 9,
            "last_timestamp_ms": 1_357_057_800_000, "last_digest": record_digest(b"k9", ten()[9][4]),
            "distinct": 10, "decoded": 10,
            "dead_lettered": 0, "filtered": 0, "deduplicated": 0, "exploded": 0, "gaps": [], "gap_count": 0,
        }
    ]  # fmt: skip
    assert report["hours"] == {
        "2013-01-01T10": [2, 0], "2013-01-01T11": [2, 0], "2013-01-01T12": [2, 1], "2013-01-01T13": [2, 2],
        "2013-01-01T14": [2, 2],
    }  # fmt: skip
    assert json.dumps(report)


def test_files_are_as_large_and_have_the_rows_and_the_digest_that_the_report_says(tmp_path: Path) -> None:
    report = BatchProcessor(order(tmp_path)).process("00000-1", [batch(ten())])
    for file in report["parts"]:
        path = tmp_path / "_staging/0000000007/0002" / file["staged"]
        assert path.stat().st_size == file["bytes"]
        counted = duckdb.execute(f"SELECT count(*), min(_offset), max(_offset) FROM '{path}'").fetchall()
        [(_, first, last)] = file["spans"]
        assert counted == [(file["rows"], first, last)]
        rows = pq.ParquetFile(path).read()
        assert str(row_digest(rows)) == file["digest"]
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_the_driver_can_read_the_report(tmp_path: Path) -> None:
    this = order(tmp_path)
    processor = pickle.loads(pickle.dumps(BatchProcessor(this)))
    reports = [processor.process(f"0000{at}-{at}", [batch(ten(0, 100, partition=at))]) for at in (0, 1)]
    receipt = receipt_of_tasks(this, [json.loads(json.dumps(report)) for report in reports])
    assert receipt.counts("files", this.ranges).written == 200
    assert all((tmp_path / part.staged).exists() for part in receipt.objects)
    assert len({part.path for part in receipt.objects}) == len(receipt.objects)


def test_gaps_between_offsets_are_listed_across_batches(tmp_path: Path) -> None:
    offsets = [3, 4, 7, 8, 9, 12]
    records = [("t", 0, offset, START, value(1, START)) for offset in offsets]
    for cuts in ([records], [records[:2], records[2:]], [[record] for record in records]):
        report = BatchProcessor(order(tmp_path)).process("x", [batch(cut) for cut in cuts])
        (count,) = report["partitions"]
        assert (count["first"], count["last"], count["read"], count["distinct"]) == (3, 12, 6, 6)
        assert [tuple(gap) for gap in count["gaps"]] == [(5, 7), (10, 12)]
        assert count["gap_count"] == 2


def test_a_long_list_of_gaps_is_cut_but_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "GAP_LIMIT", 3)
    records = [("t", 0, offset, START, value(1, START)) for offset in range(0, 20, 2)]
    report = BatchProcessor(order(tmp_path)).process("x", [batch(records[:4]), batch(records[4:])])
    (count,) = report["partitions"]
    assert [tuple(gap) for gap in count["gaps"]] == [(1, 2), (3, 4), (5, 6)]
    assert count["gap_count"] == 9


@pytest.mark.parametrize("offsets", [[1, 2, 2, 3], [1, 3, 2, 4], [5, 1, 2, 3]])
def test_offsets_that_come_twice_or_out_of_order_show_in_distinct(tmp_path: Path, offsets: list[int]) -> None:
    records = [("t", 0, offset, START, value(1, START)) for offset in offsets]
    for cuts in ([records], [[record] for record in records]):
        (count,) = BatchProcessor(order(tmp_path)).process("x", [batch(cut) for cut in cuts])["partitions"]
        assert count["read"] == 4
        assert count["distinct"] < 4
        assert (count["first"], count["last"]) == (min(offsets), max(offsets))


def test_rows_of_a_file_keep_the_order_of_their_offsets(tmp_path: Path) -> None:
    records = [("t", at % 2, at, START, value(at, START + timedelta(hours=at % 3))) for at in range(3_000)]
    report = BatchProcessor(order(tmp_path)).process("x", [batch(records[:1_000]), batch(records[1_000:])])
    assert len(report["parts"]) == 3, "one for each hour, whatever partitions its rows are of"
    for file in report["parts"]:
        rows = pq.ParquetFile(tmp_path / "_staging/0000000007/0002" / file["staged"]).read()
        assert [partition for partition, _, _ in file["spans"]] == [0, 1]
        for partition, first, last in file["spans"]:
            offsets = rows.filter(pc.equal(rows["_partition"], partition))["_offset"].to_pylist()
            assert offsets == sorted(offsets)
            assert (offsets[0], offsets[-1], len(offsets)) == (first, last, 500)


def test_several_partitions_and_topics_in_a_batch_are_kept_apart(tmp_path: Path) -> None:
    records = [record for pair in zip(ten(0, 6), ten(0, 6, partition=1), strict=True) for record in pair]
    records += [("_u/v", 0, 5, START, value(1, START)), ("_u/v", 0, 6, START, b"bad")]
    report = BatchProcessor(order(tmp_path)).process("x", [batch(records)])
    names = ("topic", "partition", "read", "decoded", "dead_lettered")
    assert [tuple(count[name] for name in names) for count in report["partitions"]] == [
        ("_u/v", 0, 2, 1, 1), ("t", 0, 6, 6, 0), ("t", 1, 6, 6, 0),
    ]  # fmt: skip
    for file in report["parts"]:
        table = pq.ParquetFile(tmp_path / "_staging/0000000007/0002" / file["staged"]).read()
        assert set(table["_topic"].to_pylist()) == {file["topic"]}
        assert set(table["_partition"].to_pylist()) == {partition for partition, _, _ in file["spans"]}
    assert {file["folder"] for file in report["parts"] if file["topic"] == "_u/v"} == {
        "raw/%5Fu%2Fv/2013/01/01/10", "_dead_letters/%5Fu%2Fv",
    }  # fmt: skip


def test_what_cannot_be_decoded_or_placed_is_a_dead_letter(tmp_path: Path) -> None:
    records = ten(0, 4)
    records[1] = ("t", 0, 1, START, b"not json")
    records[2] = ("t", 0, 2, START, b'{"id": 2}')
    report = BatchProcessor(order(tmp_path)).process("x", [batch(records)])
    (count,) = report["partitions"]
    assert (count["read"], count["decoded"], count["dead_lettered"]) == (4, 3, 2)
    assert sorted(staged(tmp_path, report)["_offset"].to_pylist()) == [0, 3]
    letters = staged(tmp_path, report, "dead_letter")
    assert letters.schema.remove_metadata() == DEAD_LETTERS
    assert [(row["_offset"], row["_value"], row["_reason"]) for row in letters.to_pylist()] == [
        (1, b"not json", "not JSON: Expecting value at character 0"),
        (2, b'{"id": 2}', "event time: field at is null"),
    ]
    assert letters["_error_class"].to_pylist() == ["value", "event_time"]
    assert letters["_schemas"].to_pylist() == [None, None]
    assert letters["_headers"][0].as_py() == [{"key": "h", "value": b"1"}]
    assert sum(written for written, _ in report["hours"].values()) == 2


@pytest.mark.parametrize("most", [2, 3, 5_000_000])
@pytest.mark.parametrize("name", ["parquet", "jsonl", "avro"])
def test_fail_names_the_first_record_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, name: str
) -> None:
    monkeypatch.setattr(held_rows, "GROUP_ROWS", 1)
    bad: Record = ("t", 0, 42, START, b"{}")
    strict = with_options(order(tmp_path, on_error="fail"), max_file_rows=most, format=name, compression="none")
    with pytest.raises(UndecodableRecord, match="field id: absent; 1 more in the same batch") as caught:
        BatchProcessor(strict).process("x", [batch(ten()), batch([bad, bad])])
    assert caught.value.context == {"manifest": 7, "topic": "t", "partition": 0, "offset": 42}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("limit", "allowed"), [(3, 3), ("2%", 4), (None, 100)])  # the ranges span 200 offsets
def test_a_task_with_more_dead_letters_than_the_manifest_may_have_fails_at_once(
    tmp_path: Path, limit: int | str | None, allowed: int
) -> None:
    bad: list[Record] = [("t", 1, at, START, b"{" if at % 2 else b"{}") for at in range(100)]
    limited = order(tmp_path, max_dead_letters=limit)
    BatchProcessor(limited).process("fine", [batch(bad[:allowed])])
    if limit is None:
        return
    read: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, 100, 2):
            read.append(at)
            yield batch(bad[at : at + 2])

    with pytest.raises(TooManyDeadLetters, match="one task has") as caught:
        BatchProcessor(limited).process("x", batches())
    assert len(read) == allowed // 2 + 1, "no further batch is read"
    assert f"max_dead_letters is {limit}: " in caught.value.what
    assert "field id: absent (first t-1 offset 0)" in caught.value.what
    assert caught.value.context == {"manifest": 7, "topic": "t", "partition": 1, "offset": 0}
    staged_files = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert all(name.startswith("fine") for name in staged_files)


def test_fail_for_event_times_is_its_own_choice(tmp_path: Path) -> None:
    no_time: Record = ("t", 0, 1, START, b'{"id": 2}')
    undecodable: Record = ("t", 0, 2, START, b"{}")
    strict = order(tmp_path, event_time={"field": "at", "on_invalid": "fail"})
    BatchProcessor(strict).process("x", [batch([undecodable])])
    with pytest.raises(UndecodableRecord, match="field at is null"):
        BatchProcessor(strict).process("x", [batch([no_time])])
    BatchProcessor(order(tmp_path, on_error="fail")).process("x", [batch([no_time])])


def test_an_event_time_in_a_header_or_a_struct_is_placed_and_a_clock_gone_mad_is_a_dead_letter(tmp_path: Path) -> None:
    in_a_header = {"header": "at", "unit": "s", "max_ahead_s": 3600}
    seconds = int(START.timestamp())
    rows = batch([("t", 0, offset, START, b'{"id": 1}') for offset in range(3)])
    headers = [[("at", str(seconds + late).encode())] for late in (0, 3600, 3601)]
    rows = rows.set_column(rows.schema.get_field_index("headers"), "headers", pa.array(headers, HEADERS))
    report = BatchProcessor(order(tmp_path, event_time=in_a_header)).process("x", [rows])
    assert list(report["hours"].values()) == [[1, 0], [1, 0]]
    assert [part["kind"] for part in report["parts"]] == ["data", "data", "dead_letter"]
    nested = {"decode": {"format": "json", "schema": "meta STRUCT<at: TIMESTAMP>"}, "event_time": {"field": "meta.at"}}
    report = BatchProcessor(order(tmp_path, **nested)).process(
        "y", [batch([("t", 0, 0, START, b'{"meta": {"at": "2013-01-01T12:34:56Z"}}'), ("t", 0, 1, START, b"{}")])]
    )
    assert report["hours"] == {"2013-01-01T12": [1, 0]}
    assert report["partitions"][0]["dead_lettered"] == 1


def test_a_task_without_records_reports_nothing(tmp_path: Path) -> None:
    for batches in ([], [batch([])]):
        report = BatchProcessor(order(tmp_path)).process("x", batches)
        assert report == {"task": "x", "partitions": [], "parts": [], "reasons": [], "unknown_fields": [],
                          "expectations": [], "hours": {}, "schemas": {}}  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_raw_records_are_laid_out_by_their_source_timestamp(tmp_path: Path) -> None:
    raw = order(tmp_path, "{pipeline}/{stream}/%Y", decode={"format": "raw"}, event_time={"field": None})
    report = BatchProcessor(raw).process("x", [batch([("t", 0, 0, START, None), ("t", 0, 1, START, b"\xff")])])
    assert [file["folder"] for file in report["parts"]] == ["flights/t/2013"]
    assert staged(tmp_path, report)["value"].to_pylist() == [None, b"\xff"]


@pytest.mark.parametrize(
    ("layout", "folders"),
    [("x", 1), ("{stream}/%Y", 2), ("{stream}/%Y/%m", 2), ("%Y/%m/%d", 3), ("%Y-%m-%dT%H", 3)],
)
def test_each_layout_has_its_folders(tmp_path: Path, layout: str, folders: int) -> None:
    times = [
        datetime(2013, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2014, 1, 1, tzinfo=UTC),
        datetime(2014, 1, 2, tzinfo=UTC),
    ]
    records = [("t", 0, at, START, value(at, when)) for at, when in enumerate(times)]
    report = BatchProcessor(order(tmp_path, layout)).process("x", [batch(records)])
    assert len({file["folder"] for file in report["parts"]}) == folders == len(report["parts"])


@settings(max_examples=draws(25))
@given(cuts=st.lists(st.integers(1, 39), max_size=5), rows=st.integers(1, 40), group=st.integers(1, 40),
       bytes_=st.integers(1, 30_000))  # fmt: skip
def test_batches_and_limits_change_files_but_not_rows(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], rows: int, group: int, bytes_: int
) -> None:
    records = [record if record[2] % 7 else (*record[:4], b"bad") for record in ten(0, 40)]
    edges = [0, *sorted(cuts), len(records)]
    root = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_rows, "GROUP_ROWS", group)
        patch.setattr(partitioned_writer, "OPEN_FILES", 3)
        patch.setattr(held_rows, "TASK_BYTES", bytes_)
        limited = with_options(order(root), max_file_rows=rows, sort_by=["at", "id"])
        report = BatchProcessor(limited).process("x", [batch(records[a:b]) for a, b in pairwise(edges)])
    plain_root = tmp_path_factory.mktemp("whole")
    plain = BatchProcessor(order(plain_root)).process("x", [batch(records)])
    for kind in ObjectKind:
        split, whole = staged(root, report, kind), staged(plain_root, plain, kind)
        assert split.sort_by("_offset").equals(whole.sort_by("_offset"))
        digests = [Digest.parse(file["digest"]) for file in report["parts"] if file["kind"] == kind]
        assert sum(digests, Digest.zero()) == row_digest(whole)
    assert max(file["rows"] for file in report["parts"]) <= rows
    assert (report["partitions"], report["hours"]) == (plain["partitions"], plain["hours"])


def test_a_full_task_moves_the_rows_of_its_largest_folder_to_a_file_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_rows, "TASK_BYTES", 30_000)
    begun: list[str] = []
    begin = writer.Writer._begin

    def told(self: writer.Writer, target: Any, rows: pa.Table) -> Any:
        begun.append(target.place[-2:])
        return begin(self, target, rows)

    monkeypatch.setattr(writer.Writer, "_begin", told)
    small = [("t", 0, at, START, value(at, START)) for at in range(3)]
    large = [("t", 0, 3 + at, START, value(at, START + timedelta(hours=1))) for at in range(1_000)]
    more = [("t", 0, 1_003 + at, START, value(at, START + timedelta(hours=1))) for at in range(1_000)]
    report = BatchProcessor(order(tmp_path)).process("x", [batch(small), batch(large), batch(more)])
    assert begun == ["11", "10"]
    assert [(file["folder"][-2:], file["rows"]) for file in report["parts"]] == [("11", 2_000), ("10", 3)]


def test_a_folder_with_many_rows_has_files_of_the_allowed_size_and_no_crumbs(tmp_path: Path) -> None:
    most, rows = 20_000, 500
    noise = [sha256(b"%d" % at).hexdigest() for at in range(16 * rows)]  # compresses to half at best
    limited = with_options(order(tmp_path, decode={"format": "raw"}, event_time={}), max_file_bytes=most)
    batches = [
        batch([("t", 0, at, START, noise[at].encode()) for at in range(start, start + rows)])
        for start in range(0, len(noise), rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_rows, "GROUP_ROWS", 50)
        report = BatchProcessor(limited).process("x", batches)
    *full, last = [file["bytes"] for file in report["parts"]]
    assert sum(file["rows"] for file in report["parts"]) == len(noise)
    assert all(most / 2 < size < most * 1.5 for size in full), full
    assert last < most * 1.5


def test_each_group_of_rows_is_sorted_and_a_file_of_one_group_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [at * 7 % 20 for at in range(20)]
    records = [("t", 0, at, START, value(number, START)) for at, number in enumerate(numbers)]
    sorting = with_options(order(tmp_path), sort_by=["id", "_offset"])
    report = BatchProcessor(sorting).process("one", [batch(records[:9]), batch(records[9:])])
    assert staged(tmp_path, report)["id"].to_pylist() == sorted(numbers)
    [file] = tmp_path.rglob("one-*.parquet")
    content = file.read_bytes()
    BatchProcessor(sorting).process("one", [batch(records)])
    assert file.read_bytes() == content, "whatever the batches were"
    monkeypatch.setattr(held_rows, "GROUP_ROWS", 10)
    grouped = BatchProcessor(sorting).process("two", [batch(records[:10]), batch(records[10:])])
    [part] = grouped["parts"]
    parquet = pq.ParquetFile(tmp_path / "_staging/0000000007/0002" / part["staged"])
    assert [parquet.read_row_group(at)["id"].to_pylist() for at in range(parquet.num_row_groups)] == [
        sorted(numbers[:10]), sorted(numbers[10:])
    ]  # fmt: skip
    assert part["digest"] == report["parts"][0]["digest"], "the order of rows does not matter"


@pytest.mark.parametrize("name", ["parquet", "jsonl", "avro"])
def test_many_folders_share_the_open_files_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(partitioned_writer, "OPEN_FILES", 4)
    monkeypatch.setattr(held_rows, "TASK_BYTES", 1)
    records = [("t", 0, at, START, value(at, START + timedelta(hours=at % 10))) for at in range(60)]
    report = BatchProcessor(with_options(order(tmp_path), format=name, compression="none")).process(
        "x", [batch(records[at : at + 20]) for at in (0, 20, 40)]
    )
    assert sum(part["rows"] for part in report["parts"]) == 60
    assert len(report["parts"]) <= 30
    assert {part["folder"][-2:] for part in report["parts"]} == {f"{10 + hour}" for hour in range(10)}


def test_two_tries_of_a_task_never_meet(tmp_path: Path) -> None:
    first = BatchProcessor(order(tmp_path)).process("00000-1", [batch(ten())])
    second = BatchProcessor(order(tmp_path)).process("00000-2", [batch(ten())])
    names = Counter(file["staged"] for report in (first, second) for file in report["parts"])
    assert set(names.values()) == {1}
    assert staged(tmp_path, first).equals(staged(tmp_path, second))


def test_only_complete_files_have_their_final_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dies while a file is written: what lies there is hidden from whoever looks for staged files."""
    seen: list[str] = []

    def die(self: pq.ParquetWriter, table: pa.Table, **_: Any) -> None:
        self.writer.write_table(table)
        seen.extend(path.name for path in tmp_path.rglob("*") if path.is_file())
        raise KeyboardInterrupt

    monkeypatch.setattr(pq.ParquetWriter, "write_table", die)
    with pytest.raises(KeyboardInterrupt):
        BatchProcessor(order(tmp_path)).process("00000-1", [batch(ten())])
    assert seen == [".00000-1-00000.parquet"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_storage_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "_staging").write_text("in the way")
    with pytest.raises(Unavailable, match="the sink files cannot stage a file") as caught:
        BatchProcessor(order(tmp_path)).process("x", [batch(ten())])
    assert caught.value.context["topic"] == "t"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decode": {"format": "xml"}}, "no format of kind 'xml' is installed here"),
        ({"decode": {"format": "json", "schema": "a FOO"}}, "expected a type"),
        ({"event_time": {"field": "when"}}, "no field when"),
        ({"sinks": (SinkOrder("x", "tape", {}),)}, "no sink of kind 'tape' is installed here"),
        (
            {
                "sinks": (
                    SinkOrder(
                        "x",
                        "files",
                        {"root": "r", "layout": "l", "format": "csv", "compression": "zstd", "max_objects": 10_000},
                    ),
                )
            },
            "csv",
        ),
    ],
)
def test_an_order_that_cannot_be_done_is_refused_before_any_task(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BatchProcessor(order(tmp_path, **changed))
