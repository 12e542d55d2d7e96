"""What every kind of sink promises to the process that publishes; a new kind must bring an example."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sandbox.services.postgres import Postgres
from tests.behaviours import sink_examples
from tests.behaviours.sink_examples import (
    CONNECTION,
    RANGES,
    AzureExample,
    CurrentDeltaExample,
    CurrentIcebergExample,
    DeltaExample,
    DeltaInBucketExample,
    DynamoExample,
    Example,
    FilesExample,
    IcebergExample,
    Overtaken,
    PostgresExample,
    S3Example,
    TopicExample,
    TotalsExample,
    ToyExample,
    agree,
    plan_two_manifests,
)
from tests.sink_faces import holds, put_into, same_output
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced, ForeignLake, LakeConflict, WorkFailed
from tidemark.kinds import SINKS
from tidemark.lifecycle.in_target import record_of
from tidemark.lifecycle.ownership import claim, hand_over, take_over
from tidemark.model.offsets import range_from
from tidemark.model.reasons import ReasonCount
from tidemark.model.receipt import Receipt
from tidemark.paths import RecordName
from tidemark.sinks.base import Owner, WriteMode
from tidemark.sinks.capabilities import TakesBack
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.object_store.owner_file import claimed_inside
from tidemark.sinks.registry import open_sink
from tidemark.storage.s3.store import S3Store

LARGE = "large files in a bucket"
EXAMPLES: dict[str, type[Example]] = {
    "delta": DeltaExample,
    "delta with a key": CurrentDeltaExample,
    "delta in a bucket": DeltaInBucketExample,
    "dynamodb": DynamoExample,
    "files": FilesExample,
    "files in a bucket": S3Example,
    "files in azure": AzureExample,
    "iceberg": IcebergExample,
    "iceberg with a key": CurrentIcebergExample,
    LARGE: S3Example,
    "postgres": PostgresExample,
    "topic": TopicExample,
    "totals": TotalsExample,
    "toy": ToyExample,
}
IN_A_BUCKET = (S3Example, DeltaInBucketExample)
GOOD = {at for at in range(10, 40) if at % 10}
BAD = {10, 20, 30}
NO_JSON = "not JSON: Expecting property name enclosed in double quotes at character 1"


def test_every_registered_kind_of_sink_has_an_example() -> None:
    assert set(SINKS) <= set(EXAMPLES)


def marked(name: str) -> Any:
    """An example in another place than a folder is left to CI; one in a bucket runs on other stores, too."""
    if EXAMPLES[name] in IN_A_BUCKET:
        return pytest.param(name, marks=[pytest.mark.bucket, pytest.mark.place])
    return pytest.param(name, marks=[pytest.mark.place] if EXAMPLES[name] is AzureExample else [])


@pytest.fixture(params=map(marked, EXAMPLES), ids=str)
def example(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: str,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Example]:
    monkeypatch.setitem(SINKS, "toy", "tidemark_toy")
    if request.param == LARGE:
        monkeypatch.setattr(S3Store, "uploads_from", 1)
    with postgres.temporary_database("warehouse") as warehouse, ManifestDatabase(database, "test") as manifests:
        more: dict[str, Any] = {}
        if EXAMPLES[request.param] in IN_A_BUCKET:
            s3 = request.getfixturevalue("s3")
            warehouse, more = s3.connection(), {"bucket": s3}
        if EXAMPLES[request.param] is AzureExample:
            azure = request.getfixturevalue("azure")
            warehouse, more = azure.connection(), {"container": azure}
        if EXAMPLES[request.param] is DynamoExample:
            monkeypatch.setenv("AIRFLOW_CONN_DYNAMODB", request.getfixturevalue("dynamodb").connection())
        if EXAMPLES[request.param] is TopicExample:
            servers = request.getfixturevalue("broker").bootstrap_servers
            warehouse = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": servers}})
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", warehouse)
        plan_two_manifests(manifests)
        yield EXAMPLES[request.param](tmp_path, manifests, warehouse, **more)


def put(
    example: Example, receipt: Receipt, fence: Callable[[], None] = agree
) -> list[dict[int, tuple[int, str | None]]]:
    """Publish into the sink; what readers saw each time the mark was set."""
    marks: list[dict[int, tuple[int, str | None]]] = []
    put_into(example.sink, receipt, RANGES, example.database.id(), fence, lambda: marks.append(example.seen()))
    return marks


def test_what_was_put_is_seen_once_and_the_mark_comes_after_it(example: Example) -> None:
    receipt = example.stage(1)
    counts = example.sink.output.counts(receipt, RANGES) if example.sink.write_mode is WriteMode.REPLACE else None
    assert counts is None or (counts.read, counts.written, counts.dead_lettered) == (30, 27, 3)
    marks = put(example, receipt)
    assert example.seen() == dict.fromkeys(GOOD, (1, ""))
    assert example.dead() == BAD
    assert marks == [example.seen()]
    after = example.sink.output.counts(receipt, RANGES)
    assert (after.read, after.written, after.dead_lettered, after.superseded, after.stale) == (30, 27, 3, 0, 0)


def test_what_was_put_has_a_record_that_says_whose_it_is(example: Example) -> None:
    receipt = example.stage(1)
    assert not example.sink.ledger.has(receipt)
    assert example.sink.ledger.records() == []
    put(example, receipt)
    assert holds(example.sink, receipt)
    assert example.sink.ledger.records() == example.sink.ledger.records(own=False) == [RecordName("demo", 1, 1)]
    assert (example.sink.ledger.recorded_attempt(1), example.sink.ledger.recorded_attempt(2)) == (1, None)
    assert example.sink.ledger.records(above=0) == [RecordName("demo", 1, 1)]
    assert example.sink.ledger.records(above=1) == example.sink.ledger.records(own=False, above=1) == []
    content = example.sink.ledger.record(RecordName("demo", 1, 1)) or {}
    assert tuple(range_from(part) for part in content["ranges"]) == RANGES
    assert content["database"] == example.database.id()
    assert content["counts"]["read"] == 30
    assert holds(example.open(), receipt), "also for another process"


def test_putting_twice_is_putting_once(example: Example) -> None:
    receipt = example.stage(1)
    put(example, receipt)
    before = example.seen(), example.dead()
    assert len(put(example, receipt)) == 1, "and the mark is set again: it may be what was missing"
    assert (example.seen(), example.dead()) == before


def test_a_higher_attempt_takes_the_place_of_a_lower_one(example: Example) -> None:
    first = example.stage(1)
    put(example, first)
    second = example.stage(2, also="mended")
    if example.sink.write_mode is WriteMode.APPEND:
        with pytest.raises(LakeConflict, match="what was appended cannot be taken back"):
            put(example, second)
        assert example.seen() == dict.fromkeys(GOOD, (1, ""))
        return
    put(example, second)
    example.sink.discard(first)
    assert example.seen() == dict.fromkeys(GOOD, (1, "mended"))
    assert example.dead() == BAD
    assert example.sink.ledger.recorded_attempt(1) == 2
    assert not example.sink.ledger.has(first)


@pytest.mark.parametrize(
    "questions", [0, *(pytest.param(number, marks=pytest.mark.thorough) for number in (1, 2, 3)), 4]
)
def test_a_fenced_attempt_leaves_what_readers_see_as_it_was(example: Example, questions: int) -> None:
    newer = example.stage(2)
    put(example, newer)
    late = example.stage(1, also="late")
    before = example.seen(), example.dead()
    with pytest.raises(Fenced):
        put(example, late, Overtaken(questions))
    assert not example.sink.ledger.has(late)
    example.sink.discard(late)
    assert (example.seen(), example.dead()) == before
    assert holds(example.sink, newer)


def test_an_attempt_that_fails_before_its_record_can_be_discarded(
    example: Example, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    receipt = example.stage(1)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_FAILPOINT", "publish.before_record:raise")
    with pytest.raises(WorkFailed):
        put(example, receipt)
    assert not example.sink.ledger.has(receipt)
    example.sink.discard(receipt)
    assert example.dead() == set()
    assert example.seen() == {}


def test_the_same_rows_have_the_same_digest_and_other_rows_another(example: Example) -> None:
    name = example.sink.name
    digests = [example.stage(1).digest(name), example.stage(2).digest(name), example.stage(3, also="x").digest(name)]
    assert digests[0] == digests[1] != digests[2]


def test_published_rows_are_alike_until_some_are_lost(example: Example) -> None:
    first = example.stage(1)
    put(example, first)
    again = example.stage(2)
    assert same_output(example.sink, first, again)
    example.lose_a_row()
    if example.sink.write_mode is WriteMode.APPEND:
        assert same_output(example.sink, first, again), "what retention took is not sent again"
        return
    assert not same_output(example.sink, first, again)
    put(example, again)
    example.sink.discard(first)
    assert example.seen() == dict.fromkeys(GOOD, (1, ""))


def test_discard_takes_away_only_its_own(example: Example) -> None:
    kept, other = example.stage(1), example.stage(1, manifest=2)
    put(example, kept)
    example.sink.discard(other)
    example.sink.discard(other)
    assert holds(example.sink, kept)
    assert example.seen() == dict.fromkeys(GOOD, (1, ""))


def test_dead_letters_are_given_back_with_all_of_their_record_or_without_values(example: Example) -> None:
    receipt = example.stage(1)
    put(example, receipt)
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    expected = [
        DeadLetter("orders", 0, at, noon + timedelta(minutes=4 * at), "value", NO_JSON, None, b"k", b"{", None)
        for at in sorted(BAD)
    ]
    assert list(example.sink.output.dead_letters(receipt, values=True)) == expected
    without = [replace(letter, key=None, value=None) for letter in expected]
    assert list(example.sink.output.dead_letters(receipt, values=False)) == without
    assert next(example.sink.output.dead_letters(receipt, values=True)) == expected[0]
    assert example.seen() == dict.fromkeys(GOOD, (1, "")), "also after a reader that went away"


def test_whatever_bytes_a_dead_letter_has_they_are_given_back(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sink_examples.records("").schema.names
    values = {10: b"\xff" * 2_000_000, 20: None, 30: b'{"n": 1, "also": "\xed\xa0\x80"}'}
    key, headers = b"../../etc/\x00\xfe", [{"key": "../h\x00\u00e9", "value": b"\x00\xff"}, {"key": "", "value": None}]
    rows = [
        {**row, "key": key, "headers": headers, "value": values.get(row["offset"], row["value"])}
        for row in sink_examples.records("").to_pylist()
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=sink_examples.records("").schema).select(names)
    monkeypatch.setattr(sink_examples, "records", lambda _: batch)
    receipt = example.stage(1)
    put(example, receipt)
    letters = {letter.offset: letter for letter in example.sink.output.dead_letters(receipt, values=True)}
    assert {at: letter.value for at, letter in letters.items()} == values
    assert {letter.key for letter in letters.values()} == {key}
    assert {letter.headers for letter in letters.values()} == {(("../h\x00\u00e9", b"\x00\xff"), ("", None))}
    assert example.seen() == dict.fromkeys(GOOD, (1, "")), "every other record is unharmed"


def test_dead_letters_are_those_of_the_newest_attempt(example: Example) -> None:
    first = example.stage(1)
    put(example, first)
    second = example.stage(2)
    put(example, second)
    example.sink.discard(first)
    assert [letter.offset for letter in example.sink.output.dead_letters(second, values=False)] == sorted(BAD)
    other = example.stage(1, manifest=2)
    put_into(example.sink, other, RANGES, example.database.id(), agree, agree)
    assert [letter.offset for letter in example.sink.output.dead_letters(second, values=False)] == sorted(BAD)


def test_the_counts_by_reason_of_a_receipt_name_class_and_offsets(example: Example) -> None:
    reason = "not JSON: Expecting property name enclosed in double quotes"
    assert example.stage(1).reasons == (ReasonCount("orders", 0, "value", reason, 3, 10, 30),)


def test_staging_is_found_and_cleared_by_manifest_and_attempt(example: Example) -> None:
    example.stage(1)
    example.stage(1, manifest=2)
    example.stage(2, manifest=2)
    assert example.sink.staging.manifests() == [1, 2]
    assert [example.sink.staging.attempts(manifest_id) for manifest_id in (1, 2, 3)] == [[1], [1, 2], []]
    example.sink.staging.clear(1, 1)
    example.sink.staging.clear(2, 1)
    assert example.sink.staging.manifests() == [2]
    example.sink.staging.clear(2, 2)
    example.sink.staging.clear(2, 2)
    assert example.sink.staging.manifests() == []


def test_a_lost_record_can_be_written_again(example: Example) -> None:
    if example.sink.write_mode is not WriteMode.REPLACE:
        return  # a marker is written with its rows only
    receipt = example.stage(1)
    assert isinstance(example.sink.output, TakesBack)
    record = record_of(example.sink, receipt, RANGES, example.database.id())
    example.sink.output.write_record(RecordName("demo", 1, 1), record)
    assert example.sink.ledger.has(receipt)


def test_a_receipt_survives_json_unchanged(example: Example) -> None:
    receipt = example.stage(1)
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert Receipt.from_raw(asdict(receipt)) == receipt


def test_a_target_is_claimed_by_one_database_for_good(example: Example) -> None:
    claim(example.sink, example.database.id())
    assert example.sink.ledger.owner() == Owner(example.database.id())
    another = "00000000-0000-0000-0000-000000000001"
    with pytest.raises(ForeignLake, match=another):
        claim(example.sink, another)
    assert example.sink.ledger.owner() == Owner(example.database.id())


def test_a_target_that_was_handed_over_refuses_its_former_owner_by_name(example: Example) -> None:
    claim(example.sink, example.database.id())
    another = "00000000-0000-0000-0000-000000000001"
    hand_over(example.sink, Owner(another, (example.database.id(),)))
    assert example.sink.ledger.owner() == Owner(another, (example.database.id(),))
    claim(example.sink, another)
    with pytest.raises(ForeignLake, match=f"was adopted by the manifest database {another}"):
        claim(example.sink, example.database.id())


@pytest.fixture
def iceberg(
    tmp_path: Path, database: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[IcebergExample]:
    with postgres.temporary_database("warehouse") as warehouse, ManifestDatabase(database, "test") as manifests:
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", warehouse)
        plan_two_manifests(manifests)
        yield IcebergExample(tmp_path, manifests, warehouse)


def test_a_place_knows_by_which_name_its_sink_comes_also_after_it_was_handed_over(example: Example) -> None:
    """A sink that comes to it by another name reads it there, and is refused."""
    example.stage(1)
    assert example.open().ledger.registered_targets() == set()
    for _ in range(2):
        example.sink.ledger.note_target()
    noted = {example.sink.target}
    assert example.open().ledger.registered_targets() == noted
    hand_over(example.sink, Owner("11111111-1111-1111-1111-111111111111", (example.database.id(),)))
    assert example.sink.ledger.registered_targets() == noted


@pytest.mark.parametrize("has_record", [True, False])
def test_rows_that_another_life_of_the_database_has_put_with_the_same_number_are_not_marked_as_own(
    iceberg: IcebergExample, has_record: bool
) -> None:
    """The attempt was staged, when one that began before the database was restored woke and committed."""
    mine = iceberg.stage(1, also="mine")
    put(iceberg, iceberg.stage(1))
    if not has_record:
        record = iceberg.folder / "warehouse" / "sales" / "orders" / str(RecordName("demo", 1, 1))
        record.unlink()
    with pytest.raises(Fenced, match="another attempt of this number has put other rows"):
        put(iceberg, mine)
    assert iceberg.seen() == dict.fromkeys(GOOD, (1, ""))


def test_the_record_of_another_life_of_the_database_with_the_same_number_stays(
    iceberg: IcebergExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That attempt may be about to commit."""
    mine, theirs = iceberg.stage(1, also="mine"), iceberg.stage(1)
    with monkeypatch.context() as patch:
        patch.setenv("TIDEMARK_HOME", str(iceberg.folder / "home"))
        patch.setenv("TIDEMARK_FAILPOINT", "publish.before_record:raise")
        with pytest.raises(WorkFailed):
            put(iceberg, theirs)
    with pytest.raises(Fenced, match="another attempt of this number has put other rows"):
        put(iceberg, mine)
    put(iceberg, theirs)
    assert holds(iceberg.sink, theirs)
    assert not holds(iceberg.sink, mine)


def test_the_position_of_a_target_grows_with_each_publication_or_there_is_none(example: Example) -> None:
    claim(example.sink, example.database.id())
    before = example.sink.ledger.position()
    put(example, example.stage(1))
    after = example.sink.ledger.position()
    if before is None or after is None:
        assert before is after is None
    else:
        assert before.identity == after.identity
        assert before.number < after.number


def test_under_another_name_a_sink_has_what_it_put_before_and_renaming_may_be_repeated(example: Example) -> None:
    """The database renames it in receipts; only the sink knows whether its target names it."""
    receipt = example.stage(1)
    put(example, receipt)
    example.stage(2)
    before, old = example.seen(), example.config.name
    objects = tuple(replace(part, sink="renamed") for part in receipt.objects)
    renamed = replace(receipt, sinks=("renamed",), objects=objects)
    example.config = example.config.model_copy(update={"name": "renamed"})
    sink = example.open()
    for _ in range(2):
        take_over(sink, "demo", old)
        assert holds(sink, renamed)
        assert sink.ledger.records() == [RecordName("demo", 1, 1)]
        assert example.seen() == before
    for attempt in sink.staging.attempts(1):
        sink.staging.clear(1, attempt)
    assert sink.staging.manifests() == example.sink.staging.manifests() == []


def test_under_another_name_of_its_pipeline_a_sink_has_what_it_put_before_and_renaming_may_be_repeated(
    example: Example,
) -> None:
    """The database renames the pipeline in its rows; only the sink knows where its target names it."""
    receipt = example.stage(1)
    put(example, receipt)
    example.stage(2)
    before, dead, counts = example.seen(), example.dead(), example.sink.output.counts(receipt, RANGES)
    example.pipeline = "orders"
    sink = example.sink = open_sink("orders", example.config, from_environment)
    for _ in range(2):
        take_over(sink, "demo", sink.name)
        claim(sink, example.database.id())
        assert holds(sink, receipt)
        assert sink.ledger.records() == sink.ledger.records(own=False) == [RecordName("orders", 1, 1)]
        assert sink.ledger.recorded_attempt(1) == 1
        assert (example.seen(), example.dead(), sink.output.counts(receipt, RANGES)) == (before, dead, counts)
    for attempt in sink.staging.attempts(1):
        sink.staging.clear(1, attempt)
    assert sink.staging.manifests() == []
    put(example, example.stage(3))
    assert (example.seen(), example.dead()) == (before, dead)


def test_the_position_of_a_target_says_which_table_it_is_unless_its_identity_does(example: Example) -> None:
    claim(example.sink, example.database.id())
    put(example, example.stage(1))
    before, put_again = example.sink.ledger.position(), example.stage(2)
    if before is None:
        return
    assert before.table_id is None or before.table_id
    if example.sink.write_mode is not WriteMode.APPEND:
        put(example, put_again)
    after = example.open().ledger.position()
    assert after is not None
    assert after.table_id == before.table_id, "what is published into it leaves it the same"


def test_a_folder_of_a_sink_is_known_to_a_root_that_it_lies_in(example: Example) -> None:
    put(example, example.stage(1))
    example.sink.ledger.note_target()
    example.stage(2)
    for store in example.sink.staging.places():
        assert claimed_inside(f"inner/{key}" for key, _ in store.list()) == {"inner"}
