"""A published file is read by its name, and a line says once which file it is about."""

from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.model.digest import row_digest
from tidemark.model.offsets import TopicPartition
from tidemark.model.receipt import MALFORMED, ObjectKind, PublishedObject, object_from
from tidemark.sinks.object_store.published_files import changed, file_difference, holds
from tidemark.storage.local import LocalStore

AT = TopicPartition("orders", "topic-id", 0)
PATH = f"_dead_letters/orders/0000000001-a0001-p00000-{10:019d}-{40:019d}-00000.parquet"
ROWS = pa.record_batch({"_topic": ["orders"] * 2, "_partition": [0, 0], "_offset": [10, 30]})


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


@pytest.fixture
def file(tmp_path: Path) -> PublishedObject:
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([ROWS]), path)
    return PublishedObject(
        "toy",
        ObjectKind.DEAD_LETTER,
        "",
        PATH,
        "orders",
        ((0, 10, 30), (2, 5, 9)),
        2,
        path.stat().st_size,
        str(row_digest(ROWS)),
    )


def difference(store: LocalStore, file: PublishedObject) -> str | None:
    problem = file_difference("demo", 1, file, dict(store.list()), store, deep=True)
    return problem.what if problem else None


def test_a_file_as_it_was_written_has_no_difference(store: LocalStore, file: PublishedObject) -> None:
    assert difference(store, file) is None
    assert changed(store, [file]) == []


def test_a_file_that_cannot_be_read_is_named_once(store: LocalStore, file: PublishedObject) -> None:
    (Path(store.root) / PATH).write_bytes(b"x" * file.bytes)
    what = difference(store, file)
    assert what is not None
    assert what.startswith(f"a file cannot be read: {PATH}: ")
    assert what.count("cannot be read") == what.count(PATH) == 1
    assert changed(store, [file]) == [file]


@pytest.mark.parametrize(("offset", "expected"), [(9, False), (10, True), (20, False), (30, True), (31, False)])
def test_a_record_is_held_by_the_file_with_its_offset(
    store: LocalStore, file: PublishedObject, offset: int, expected: bool
) -> None:
    assert holds(store, file, AT, offset) is expected


@pytest.mark.parametrize(
    ("topic", "partition", "offset"), [("other", 0, 10), ("orders", 1, 10), ("orders", 2, 10), ("orders", 0, 9)]
)
def test_a_file_whose_offsets_do_not_enclose_that_of_a_record_is_not_read(
    store: LocalStore, file: PublishedObject, topic: str, partition: int, offset: int
) -> None:
    (Path(store.root) / PATH).unlink()
    assert not holds(store, file, TopicPartition(topic, "topic-id", partition), offset)
    with pytest.raises(OSError, match="cannot be read"):
        holds(store, file, AT, 10)


def test_an_object_is_read_as_it_was_stored_also_by_release_0_3(file: PublishedObject) -> None:
    raw = asdict(file)
    assert object_from(raw) == file
    of_one = {name: value for name, value in raw.items() if name != "spans"}
    older = {**of_one, "partition": 0, "first_offset": 10, "last_offset": 30}
    assert object_from(older) == replace(file, spans=((0, 10, 30),))
    with pytest.raises(MALFORMED):
        object_from(of_one)
