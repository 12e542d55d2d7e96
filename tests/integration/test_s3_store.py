"""The store behind s3://: what it keeps of the promises that publishing relies on, in the emulator or another store."""

import os
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from sandbox.services.processes import free_port
from sandbox.services.s3 import Bucket
from tests.worlds.moved_files import assert_moved_and_removed, nothing, stage
from tests.worlds.s3_world import ENCRYPTS
from tidemark.connections.lookup import from_environment
from tidemark.errors import AccessDenied, ConfigurationError, TidemarkError, Unavailable, WorkFailed
from tidemark.storage.base import Move
from tidemark.storage.open import open_store
from tidemark.storage.s3.client import UploadEnded
from tidemark.storage.s3.store import MIB, S3Store
from tidemark.storage.s3.uploads import PART_BYTES, UPLOADED_BYTES, Note, note_of, send_parts

SMALLEST_PART = 5 * MIB
STAGING = "_staging/1/0001"
CONNECTION = {"connection": "lake_keys"}


def opened(s3: Bucket, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> S3Store:
    """An empty prefix."""
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", s3.connection())
    root = s3.below(uuid4().hex).root
    return S3Store(root, {**CONNECTION, **settings}, from_environment, multipart_bytes=SMALLEST_PART)


@pytest.fixture
def store(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    return opened(s3, monkeypatch)


def upload(store: S3Store, key: str = "a") -> tuple[Move, bytes]:
    content = os.urandom(UPLOADED_BYTES)
    return stage(store, key, content, final=True), content


def uploads(s3: Bucket, store: S3Store) -> list[str]:
    """The names of unfinished uploads of this test."""
    return [key.rpartition("/")[2] for key, _ in replace(s3, root=store.root).uploads()]


@pytest.mark.parametrize("size", [0, 1, SMALLEST_PART, 2 * SMALLEST_PART + 1])
def test_an_object_is_staged_moved_and_removed_whole_and_in_parts(store: S3Store, size: int) -> None:
    assert_moved_and_removed(store, size, refused_with="no longer exists, and was not copied")


@pytest.mark.parametrize("size", [UPLOADED_BYTES, 2 * PART_BYTES + 1])
def test_a_large_file_is_an_upload_that_a_move_completes(store: S3Store, s3: Bucket, size: int) -> None:
    content = os.urandom(size)
    move = stage(store, "a", content, final=True)
    assert [key for key, _ in store.list()] == [note_of(move.staged)], "there is nothing to copy"
    assert store.folders("_staging") == ["1"]
    store.move_each([move], nothing, nothing)
    assert store.get("raw/a") == content
    store.move(move.staged, move.key, move.size)  # done before
    store.delete_folder("_staging")
    store.move(move.staged, move.key, move.size)
    assert [*store.list()] == [("raw/a", size)]
    assert uploads(s3, store) == []


def test_a_file_below_the_limit_or_without_a_final_key_is_an_object(store: S3Store) -> None:
    moves = [
        stage(store, "a", os.urandom(UPLOADED_BYTES - 1), final=True),
        stage(store, "b", os.urandom(UPLOADED_BYTES)),
    ]
    assert [key for key, _ in store.list()] == [move.staged for move in moves]
    store.move_each(moves, nothing, nothing)
    assert store.has({move.key: move.size for move in moves})


@pytest.mark.parametrize("stop", ["stop_uploads", "delete_folder"])
@pytest.mark.parametrize("lists_by_prefix", [True, False])
def test_an_upload_that_was_stopped_is_completed_by_nobody(
    store: S3Store, s3: Bucket, monkeypatch: pytest.MonkeyPatch, stop: str, lists_by_prefix: bool
) -> None:
    """Also in a store that lists uploads by their whole key only, as MinIO does."""
    move, _ = upload(store)
    begun = Note.parse(store.get(note_of(move.staged)))
    assert begun is not None
    with monkeypatch.context() as patched:
        if not lists_by_prefix:
            patched.setattr(S3Store, "_uploads", lambda *_: iter(()))
        getattr(store, stop)(STAGING)
        getattr(store, stop)(STAGING)  # done before
    assert uploads(s3, store) == []
    store.put(note_of(move.staged), begun.content())
    with pytest.raises(WorkFailed, match=r"the upload of s3://.*/raw/a no longer exists: another process has ended it"):
        store.move(move.staged, move.key, move.size)
    assert store.get("raw/a") is None


def test_parts_of_an_upload_that_another_has_stopped_are_told_as_that(
    store: S3Store, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer attempt does so while this one still sends: neither is the store busy, nor does it lack anything."""

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        store.stop_uploads(STAGING)
        return send_parts(*arguments)

    monkeypatch.setattr("tidemark.storage.s3.store.send_parts", overtaken)
    with pytest.raises(UploadEnded, match=r"the upload of s3://.*/raw/a no longer exists: another") as ended:
        upload(store)
    assert ended.value.next_step.startswith("nothing is published half. A newer attempt at work goes on instead")
    assert uploads(s3, store) == []


@pytest.mark.parametrize("stop", ["stop_uploads", "delete_folder"])
def test_an_upload_whose_id_died_with_its_process_is_found_by_its_key(
    store: S3Store, s3: Bucket, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Also in a store that lists uploads by their whole key only, as MinIO does."""
    listed = S3Store._uploads

    def dies(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tidemark.storage.s3.store.send_parts", dies)
        with pytest.raises(KeyboardInterrupt):
            upload(store)
    assert uploads(s3, store) == ["a"]
    with monkeypatch.context() as patched:
        patched.setattr(
            S3Store,
            "_uploads",
            lambda self, key: iter([upload for upload in listed(self, key) if upload["Key"] == key]),
        )
        getattr(store, stop)(STAGING)
    assert uploads(s3, store) == []


def test_to_remove_a_note_stops_its_upload_and_no_other(
    store: S3Store, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    (move, _), (other, content) = upload(store, "a"), upload(store, "b")
    monkeypatch.setattr(S3Store, "_uploads", lambda *_: iter(()))
    store.delete([note_of(move.staged)])
    monkeypatch.undo()
    assert uploads(s3, store) == ["b"]
    store.move(other.staged, other.key, other.size)
    assert store.get("raw/b") == content


def test_a_note_that_lies_there_already_does_not_leave_its_upload_behind(store: S3Store, s3: Bucket) -> None:
    """Two tasks have the same name only where a database was restored and a task of before is alive."""
    upload(store)
    move, content = upload(store)
    store.move(move.staged, move.key, move.size)
    assert store.get(move.key) == content
    assert uploads(s3, store) == []


def test_an_upload_without_all_parts_is_not_completed(store: S3Store) -> None:
    move, _ = upload(store)
    begun = Note.parse(store.get(note_of(move.staged)))
    assert begun is not None
    store.put(note_of(move.staged), Note(begun.key, begun.upload_id).content())
    with pytest.raises(WorkFailed, match="does not have all its parts"):
        store.move(move.staged, move.key, move.size)
    assert store.get(move.key) is None


def test_who_publishes_need_not_agree_about_what_is_large(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = [stage(store, "a", b"object", final=True)]
    with monkeypatch.context() as patched:
        patched.setattr(S3Store, "uploads_from", 1)
        moves.append(stage(store, "b", b"upload", final=True))
        store.move(moves[0].staged, moves[0].key, moves[0].size)
    store.move(moves[1].staged, moves[1].key, moves[1].size)
    assert [*store.list("raw")] == [("raw/a", 6), ("raw/b", 6)]


def test_a_damaged_note_names_no_upload(store: S3Store) -> None:
    move, _ = upload(store)
    store.put(note_of(move.staged), b"{}")
    with pytest.raises(WorkFailed, match="no longer exists, and was not copied"):
        store.move(move.staged, move.key, move.size)
    store.delete_folder(STAGING)
    assert [*store.list()] == []


@ENCRYPTS
def test_objects_are_encrypted_as_the_pipeline_says(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(s3, monkeypatch, server_side_encryption="aws:kms", kms_key_id="alias/lake")
    store.put("_manifests/a", b"1")
    for key, size in (("small", 10), ("large", 2 * SMALLEST_PART)):
        store.move_each([stage(store, key, b"x" * size)], nothing, nothing)
    for key in ("_manifests/a", "raw/small", "_staging/1/0001/small", "raw/large"):
        head = s3.client().head_object(Bucket=s3.name, Key=f"{replace(s3, root=store.root).prefix}/{key}")
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "alias/lake"), key


@ENCRYPTS
def test_objects_have_checksums_when_the_pipeline_says_so(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in (True, False):
        store = opened(s3, monkeypatch, checksums=wanted)
        assert store.put_if_absent("_manifests/a", b"1")
        for key, size in (("small", 10), ("large", 2 * SMALLEST_PART)):
            store.move_each([stage(store, key, b"x" * size)], nothing, nothing)
        store.uploads_from = SMALLEST_PART
        upload = stage(store, "upload", b"x" * (2 * SMALLEST_PART + 1), final=True)
        if wanted:
            note = store.get(f"{upload.staged}.upload") or b""
            assert b"ChecksumCRC32" in note, "the store wants them again with the last request"
        store.move_each([upload], nothing, nothing)
        for key in ("_manifests/a", "_staging/1/0001/small", "_staging/1/0001/large"):
            at = {"Bucket": s3.name, "Key": f"{replace(s3, root=store.root).prefix}/{key}"}
            head = s3.client().head_object(**at, ChecksumMode="ENABLED")
            assert any(name.startswith("Checksum") for name in head) is wanted, (key, head)
        assert store.has({"raw/small": 10, "raw/large": 2 * SMALLEST_PART, "raw/upload": 2 * SMALLEST_PART + 1})


def test_an_endpoint_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    port = free_port()
    store = open_store("s3://lake/x", {"endpoint_url": f"http://127.0.0.1:{port}"})
    with pytest.raises(Unavailable, match="did not answer the request to read s3://lake/x/key") as caught:
        store.get("key")
    assert "endpoint_url" in caught.value.next_step


def test_without_any_keys_it_is_said_where_they_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    with pytest.raises(AccessDenied, match="no keys were found") as caught:
        open_store("s3://lake/x", {"endpoint_url": "http://127.0.0.1:9"}).get("key")
    assert "a connection of type aws in the sink" in caught.value.next_step


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (None, "the S3 connection lake_keys does not exist"),
        ('{"login": "a"}', "has only one half of a key"),
        ('{"login": "a", "password": "canary", "extra": {"role_arn": "r"}}', "has unknown keys in its extra: role_arn"),
        ('{"extra": {"endpoint_url": "http://me:canary@minio:9000"}}', "is not the address of a store"),
    ],
)
def test_a_connection_that_cannot_be_used_is_named_without_its_values(
    monkeypatch: pytest.MonkeyPatch, connection: str | None, message: str
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_LAKE_KEYS", raising=False)
    if connection:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", connection)
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_store("s3://lake/x", CONNECTION).get("key")
    assert "canary" not in str(caught.value)


def test_a_profile_of_the_connection_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", '{"extra": {"profile_name": "nobody"}}')
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(TidemarkError, match="nobody"):
        open_store("s3://lake/x", CONNECTION).get("key")


def test_of_two_that_have_read_the_same_object_one_replaces_it(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("raw/h/_SUCCESS", b"1")
    put = store._put

    def overtaken(key: str, content: Any, **condition: Any) -> None:
        monkeypatch.setattr(store, "_put", put)
        store.put(key, b"3")
        put(key, content, **condition)

    monkeypatch.setattr(store, "_put", overtaken)
    assert not store.replace("raw/h/_SUCCESS", b"1", b"2")
    assert store.get("raw/h/_SUCCESS") == b"3"
