"""What every store of files promises to those who publish; a new kind must bring an example."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandbox.services.azurite import Container
from sandbox.services.s3 import Bucket
from tests.worlds.moved_files import assert_moved_and_removed, nothing, stage
from tidemark.errors import Fenced
from tidemark.kinds import STORES
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store
from tidemark.storage.remote import RemoteStore

CONNECTION = {"connection": "lake_keys"}
OWNER = "_manifests/_owner.json"
FOLDER = "a folder"
EXAMPLES = (FOLDER, "s3", "abfss")


def test_every_registered_store_has_an_example() -> None:
    assert {*STORES} <= {*EXAMPLES}


@pytest.fixture(params=EXAMPLES)
def store(
    request: pytest.FixtureRequest, s3: Bucket, azure: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """An empty folder or prefix."""
    if request.param == FOLDER:
        return open_store(str(tmp_path / "lake"))
    place = (s3 if request.param == "s3" else azure).below(uuid4().hex)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", place.connection())
    return open_store(place.root, CONNECTION)


@pytest.mark.parametrize("size", [0, 1, 2 * 1024 * 1024 + 1])
def test_what_is_staged_is_moved_and_removed(store: ObjectStore, size: int) -> None:
    store.check(replaces=True)
    assert [*store.list()] == [], "the probe is gone"
    assert_moved_and_removed(store, size)


def test_of_many_who_create_a_key_one_is_told(store: ObjectStore) -> None:
    store.check()
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda who: store.put_if_absent(OWNER, b"%d" % who), range(8)))
    assert sum(told) == 1
    assert store.get(OWNER) == b"%d" % told.index(True)
    assert [key for key, _ in store.list()] == [OWNER], "the probe is gone"


def test_an_object_is_replaced_only_while_it_is_as_it_was_read(store: ObjectStore) -> None:
    assert not store.replace("raw/h/_SUCCESS", b"1", b"2")
    assert store.replace("raw/h/_SUCCESS", None, b"1")
    assert not store.replace("raw/h/_SUCCESS", None, b"2")
    assert store.replace("raw/h/_SUCCESS", b"1", b"2")
    assert not store.replace("raw/h/_SUCCESS", b"1", b"3")
    assert store.get("raw/h/_SUCCESS") == b"2"


def test_folders_and_names_are_found_by_their_objects_and_removed_with_them(store: ObjectStore) -> None:
    for key in ("_staging/2/0001/x", "_staging/10/0001/x", "_staging/10/0002/files/y", "_staging/loose"):
        store.put(key, b"1")
    assert store.folders("_staging") == ["10", "2"]
    assert store.folders("_staging/10") == ["0001", "0002"]
    [outer, *_] = store.around()
    assert len([*outer.list(store.root.rpartition("/")[2])]) == 4
    store.delete_folder("_staging/1")
    store.delete_folder("_staging/10")
    left = [key for key, _ in store.list("_staging")]
    assert (left if isinstance(store, RemoteStore) else sorted(left)) == ["_staging/2/0001/x", "_staging/loose"]


def test_a_file_is_read_piece_by_piece(store: ObjectStore) -> None:
    table = pa.table({"n": range(100_000), "text": [f"row {number}" for number in range(100_000)]})
    with store.create("raw/a.parquet") as file:
        pq.write_table(table, file, row_group_size=10_000)
        file.seek(0)
        assert pq.read_metadata(file).num_rows == 100_000
    with store.open("raw/a.parquet") as file:
        assert pq.read_metadata(file).num_row_groups == 10
        assert pq.read_table(file, columns=["text"]).equals(table.select(["text"]))
    with pytest.raises(FileNotFoundError):
        store.open("raw/b.parquet")


def test_nothing_is_staged_by_a_writer_that_fails(store: ObjectStore) -> None:
    with suppress(ZeroDivisionError), store.create("_staging/1/0001/a") as file:
        file.write(b"half" * (1 // len(os.urandom(0))))
    assert [*store.list()] == []


def test_the_fence_is_asked_before_each_move_and_nothing_is_under_way_after_it_says_no(store: ObjectStore) -> None:
    moves = [stage(store, f"{number:02d}", b"x" * number) for number in range(40)]
    asked = 0

    def fence() -> None:
        nonlocal asked
        assert threading.current_thread() is threading.main_thread()
        asked += 1
        if asked > 25:
            raise Fenced("a newer attempt is at work")

    with pytest.raises(Fenced):
        store.move_each(moves, fence, nothing)
    assert asked == 26
    assert sorted(key for key, _ in store.list("raw")) == [move.key for move in moves[:25]]
