"""What only files promise: keys that belong to one attempt, and what is known of one when something is damaged."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any, BinaryIO

import pytest

from tests.behaviours.sink_examples import RANGES, FilesExample, Overtaken, agree, plan_two_manifests
from tests.sink_faces import holds, put_into, same_output
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.sinks.files.sink import FilesOutput
from tidemark.sinks.object_store.published_files import READERS
from tidemark.storage.base import ObjectStore

STUCK_S = 30.0


class LakeExample(FilesExample):
    """A files sink as it is, with its store."""

    @property
    def store(self) -> ObjectStore:
        assert isinstance(self.sink.output, FilesOutput)
        return self.sink.output.store


@pytest.fixture
def example(tmp_path: Path, database: str) -> Iterator[LakeExample]:
    with ManifestDatabase(database, "test") as manifests:
        plan_two_manifests(manifests)
        yield LakeExample(tmp_path, manifests, "")


def contents(example: LakeExample) -> dict[str, Any]:
    """Every object but the owner's with its bytes and the moment it was written."""
    paths = {key: Path(example.lake, key) for key, _ in example.store.list() if "_owner" not in key}
    return {key: (path.read_bytes(), path.stat().st_mtime_ns) for key, path in paths.items()}


def put(example: LakeExample, receipt: Receipt, fence: Callable[[], None] = agree) -> None:
    put_into(example.sink, receipt, RANGES, example.database.id(), fence, agree)


def test_two_attempts_share_no_object(example: LakeExample) -> None:
    first, second = example.stage(1), example.stage(2)
    assert first.digest("files") == second.digest("files")
    assert not {object_.path for object_ in first.objects} & {object_.path for object_ in second.objects}


def test_putting_twice_moves_no_object_again(example: LakeExample) -> None:
    receipt = example.stage(1)
    put(example, receipt)
    before = contents(example)
    put(example, receipt)
    objects = {object_.path for object_ in receipt.objects}
    after = contents(example)
    assert {key: after[key] for key in objects} == {key: before[key] for key in objects}
    assert {key: state[0] for key, state in after.items()} == {key: state[0] for key, state in before.items()}


def test_a_put_that_died_halfway_is_finished_by_repeating_it(example: LakeExample) -> None:
    receipt = example.stage(1)
    first = receipt.objects[0]
    example.store.move(first.staged, first.path, first.bytes)
    put(example, receipt)
    assert holds(example.sink, receipt)


@pytest.mark.parametrize("questions", range(5))
def test_fenced_before_the_record_what_an_attempt_put_can_be_discarded(example: LakeExample, questions: int) -> None:
    newer = example.stage(2)
    put(example, newer)
    before = contents(example)
    late = example.stage(1)
    assert len(late.objects) + 1 == 5  # one question per object and one before the record
    with pytest.raises(Fenced):
        put(example, late, Overtaken(questions))
    assert not example.sink.ledger.has(late)
    example.sink.discard(late)
    assert contents(example) == before
    assert holds(example.sink, newer)


def test_discard_removes_only_its_own(example: LakeExample) -> None:
    kept, other_manifest = example.stage(1), example.stage(1, manifest=2)
    put(example, kept)
    put(example, other_manifest)
    before = contents(example)
    unpublished = example.stage(2, also="mended")
    put(example, unpublished)
    still_staged = example.stage(3)
    example.sink.discard(unpublished)
    assert contents(example).keys() == before.keys() | {object_.staged for object_ in still_staged.objects}
    example.sink.discard(still_staged)
    assert contents(example) == before
    assert example.store.folders("_staging/0000000001") == ["0001"]  # empty, and not of a discarded attempt


def test_published_files_are_compared_with_a_replay_some_at_once(
    example: LakeExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = example.stage(1)
    put(example, receipt)
    assert len(receipt.objects) == READERS
    together, opened = Barrier(READERS), example.store.open

    def open_together(key: str) -> BinaryIO:
        together.wait(STUCK_S)  # breaks when the others do not come
        return opened(key)

    monkeypatch.setattr(example.store, "open", open_together)
    assert same_output(example.sink, receipt, receipt)
    assert example.sink.output.damaged(receipt) == []


def test_every_file_with_other_rows_is_named_in_the_order_of_the_receipt(example: LakeExample) -> None:
    receipt, mended = example.stage(1), example.stage(2, also="mended")
    put(example, receipt)
    changed = [object_ for object_ in receipt.objects if object_.kind is ObjectKind.DATA]
    for object_, other in zip(changed, mended.objects, strict=False):
        example.store.put(object_.path, example.store.get(other.staged) or b"")
    assert len(changed) == 3
    assert not same_output(example.sink, receipt, receipt)
    resized = [replace(object_, bytes=example.store.size(object_.path) or 0) for object_ in receipt.objects]
    assert example.sink.output.damaged(replace(receipt, objects=tuple(resized))) == [
        object_ for object_ in resized if object_.kind is ObjectKind.DATA
    ]


def known(example: LakeExample, receipt: Receipt) -> tuple[bool, bool, bool]:
    return example.sink.ledger.has(receipt), holds(example.sink, receipt), same_output(example.sink, receipt, receipt)


def test_what_is_known_of_an_attempt_needs_its_record_its_objects_and_their_rows(example: LakeExample) -> None:
    receipt = example.stage(1)
    record = "_manifests/demo/0000000001.0001.json"
    truth = {}
    truth["nothing put"] = known(example, receipt)
    put(example, receipt)
    truth["put"] = known(example, receipt)
    original = example.store.get(record) or b""
    for damage, content in (
        ("no json", b"{"),
        ("a list", b"[]"),
        ("other rows", original.replace(b'"digest"', b'"was"')),
    ):
        example.store.put(record, content)
        truth[damage] = known(example, receipt)
    example.store.delete([record])
    truth["no record"] = known(example, receipt)
    example.store.put(record, original)
    path = receipt.objects[0].path
    whole = example.store.get(path) or b""
    example.store.put(path, whole[:-1])
    truth["truncated"] = known(example, receipt)
    example.store.put(path, whole[:-4] + b"PAR2")
    truth["garbage of its size"] = known(example, receipt)
    example.store.delete([path])
    truth["object gone"] = known(example, receipt)
    example.store.put(path, whole)
    truth["mended"] = known(example, receipt)
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
