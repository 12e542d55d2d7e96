"""What a local lake root keeps when the machine loses power: objects, and the folders that lead to them."""

import os
from pathlib import Path

import pytest

from tidemark.errors import Unavailable
from tidemark.storage import local
from tidemark.storage.local import LocalStore


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The folders that were synced. Power cannot be cut in a test, so the real calls are only written down."""
    folders: set[Path] = set()
    sync = os.fsync

    def written_down(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            folders.add(path)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", written_down)
    return folders


def test_schedule_15_a_new_root_and_all_new_folders_of_it_are_durable(tmp_path: Path, synced: set[Path]) -> None:
    root = tmp_path / "data" / "lake"
    assert LocalStore(str(root)).put_if_absent("_manifests/_owner.json", b"{}")
    assert synced == {tmp_path, root.parent, root, root / "_manifests"}


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_schedule_15_a_folder_that_another_process_has_just_made_is_durable_with_the_record_in_it(
    tmp_path: Path, synced: set[Path], verb: str
) -> None:
    folder = tmp_path / "_manifests" / "demo"
    folder.mkdir(parents=True)
    getattr(LocalStore(str(tmp_path)), verb)("_manifests/demo/0000000001.0001.json", b"{}")
    assert synced == {tmp_path, folder.parent, folder}


def test_schedule_15_folders_of_moved_objects_are_durable_up_to_the_root(tmp_path: Path, synced: set[Path]) -> None:
    store = LocalStore(str(tmp_path))
    with store.create("_staging/1/a") as file:
        file.write(b"rows")
    store.move("_staging/1/a", "raw/t/10/a", 4)
    store.sync(["raw/t/10/a"])
    assert synced == {tmp_path, tmp_path / "raw", tmp_path / "raw/t", tmp_path / "raw/t/10"}


def test_a_file_is_replaced_only_while_it_is_as_it_was_read(tmp_path: Path, synced: set[Path]) -> None:
    store = LocalStore(str(tmp_path))
    assert not store.replace("h/_SUCCESS", b"1", b"2")
    assert store.replace("h/_SUCCESS", None, b"1")
    assert synced == {tmp_path, tmp_path / "h"}
    assert not store.replace("h/_SUCCESS", None, b"2")
    assert store.replace("h/_SUCCESS", b"1", b"2")
    assert not store.replace("h/_SUCCESS", b"1", b"3")
    assert store.get("h/_SUCCESS") == b"2"
    assert [path.name for path in (tmp_path / "h").iterdir()] == ["_SUCCESS"]


def test_a_process_that_holds_the_lock_for_long_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOCK_S", 0.05)
    store = LocalStore(str(tmp_path))
    with store._locked(), pytest.raises(Unavailable, match="has locked"):
        store.replace("h/_SUCCESS", None, b"1")
    assert store.replace("h/_SUCCESS", None, b"1")
