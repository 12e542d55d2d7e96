"""Whoever asks others again comes to an end, and says what did not come: a store, a folder, a server, a process."""

import errno
import fcntl
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

import pytest

from tests.worlds.world import World
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Unavailable, WorkFailed
from tidemark.lifecycle.publish import Publisher
from tidemark.operations import audit, notify
from tidemark.sinks.files.sink import FilesOutput
from tidemark.spark import connected
from tidemark.spark.remote import Remote
from tidemark.storage import local
from tidemark.storage.local import LocalStore

MakeWorld = Callable[..., World]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(local, "BUSY_S", 0.05)
    opened = LocalStore(str(tmp_path))
    with opened.create("staged/a") as file:
        file.write(b"rows")
    return opened


def missing(*_: object, **__: object) -> None:
    raise FileNotFoundError(errno.ENOENT, "it is there, and it is not")


def test_a_folder_that_is_never_empty_is_named(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_empty(folder: Path) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(folder))  # as NFS says while a file is open elsewhere

    monkeypatch.setattr(shutil, "rmtree", not_empty)
    with pytest.raises(WorkFailed, match=r"Directory not empty: .*staged"):
        store.delete_folder("staged")


def test_a_file_that_cannot_be_named_is_no_reason_to_go_on_for_ever(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rename", missing)
    with pytest.raises(WorkFailed, match="it is there, and it is not"):
        store.move("staged/a", "raw/a", 4)
    monkeypatch.setattr(Path, "open", missing)
    with pytest.raises(FileNotFoundError), store.create("staged/b"):
        pass


def test_a_target_that_does_not_keep_what_it_confirms_is_named(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    world.ok("run", "demo")
    [record] = (world.lake / "_manifests" / "demo").iterdir()
    record.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(FilesOutput, "write_record", lambda *_: None)
        world.ok("retry", "demo", "--manifest", "1")  # it ends, and leaves the sink as it is
        assert world.here("audit", "demo").exit_code == 1
        context = world.context()
        [manifest] = context.database.manifests.find("demo")
        with pytest.raises(WorkFailed, match="does not show what was written there: evidence missing after") as named:
            Publisher(context).settle(manifest, context.sinks[0], manifest.attempt)
        assert named.value.next_step.endswith("tidemark retry demo")
    world.ok("retry", "demo", "--manifest", "1")
    assert record.exists()


def test_a_server_that_closes_every_session_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connected, "SESSIONS_OF_A_DAY", 3)
    monkeypatch.setattr(connected, "_is_open", lambda _: False)
    sessions = mock.Mock(name="there is no server that closes at once")
    monkeypatch.setattr(connected, "_Session", sessions)
    remote = mock.create_autospec(Remote, instance=True, address="sc://here:1", is_here=False)
    with (
        pytest.raises(Unavailable, match="the Spark Connect server has closed 3 sessions of these settings today"),
        connected._session(remote, "00000000-0000-0000-0000-000000000000", {}),
    ):
        pass
    assert sessions.call_count == 3


def test_notices_wait_for_another_process_and_not_for_ever(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=1)
    monkeypatch.setattr(notify, "WAIT_S", 0.2)
    with (world.folder / "_notified.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = world.here("monitor", "notify", "--dry-run")
    assert done.exit_code == 1
    assert "another tidemark monitor notify has been at work for more than" in " ".join(done.stderr.split())
    world.ok("monitor", "notify", "--dry-run")


# what is stored was seen before


def test_notices_are_of_what_was_seen_after_the_other_process_had_ended(tmp_path: Path) -> None:
    memory = tmp_path / "notified.json"

    def look() -> list[Any]:
        with memory.with_suffix(".lock").open("a") as held, pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return []

    tell = mock.Mock(name="nothing is told")
    told = notify.notify(look, memory, tell, after=notify.timedelta(), is_gone=lambda _: True, dry_run=False)
    assert told == []


def test_the_time_of_an_audit_is_when_it_began(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    world.ok("run", "demo")
    looked_at: list[datetime] = []
    look = audit._that_stay

    def looked(*words: Any, **settings: Any) -> Any:
        yield from look(*words, **settings)
        looked_at.append(datetime.now(UTC))

    with monkeypatch.context() as patch:
        patch.setattr(audit, "_that_stay", looked)
        world.ok("audit", "demo")
    [status] = world.json("status", "demo")
    [stored] = status["audits"]
    assert datetime.fromisoformat(stored["at"]) < looked_at[0], "what changed meanwhile may not have been seen"


def test_an_hour_is_complete_after_what_its_closing_has_waited_for(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    world.ok("plan", "demo")
    world.ok("retry", "demo")
    closing = Event()

    def close() -> None:
        with ManifestDatabase(world.dsn, "test") as database, database.transaction():
            closing.set()
            database.hours.lock("demo")
            assert database.hours.close("demo", datetime(2024, 3, 2, tzinfo=UTC), [])

    thread = Thread(target=close)
    with ManifestDatabase(world.dsn, "test") as other, other.transaction():
        other.hours.lock("demo")
        thread.start()
        assert closing.wait(10)
        time.sleep(0.2)  # it waits for the lock
        until = datetime.now(UTC)
    thread.join()
    assert {datetime.fromisoformat(view["complete_at"]) > until for view in world.json("hours", "demo")} == {True}
