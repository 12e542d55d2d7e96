"""What every registered transform promises; a new one is picked up by itself and must bring examples."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemark.decoders.base import DELETED, ErrorClass
from tidemark.errors import ConfigurationError
from tidemark.kinds import TRANSFORMS
from tidemark.model.order import TransformOrder
from tidemark.processing.processor import METADATA
from tidemark.transforms.base import MADE, OnFrames, Transform, Transformed
from tidemark.transforms.registry import open_transform

TAGS = pa.list_(pa.field("element", pa.string()))
DATA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("tags", TAGS)])
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Examples:
    """Options of a transform that takes some rows of ``rows(40)`` away, and options that cannot work on ``DATA``."""

    options: dict[str, Any]
    wrong: dict[str, Any]


LIMITS = {"limit_s": 60, "max_bytes": 2**30}
CODE = {
    "rows.py": """
import pyarrow.compute as pc

def first_names(batch):
    print("this must not end among the results")
    early = pc.less(pc.binary_length(pc.fill_null(batch["name"], "")), 3)
    return batch.filter(pc.and_(early, pc.not_equal(pc.bit_wise_and(batch["id"], 3), 1)))
"""
}
EXAMPLES = {
    "toy": Examples({"every": 3, "once": "name"}, {"every": 3, "once": "nome"}),
    "filter": Examples({"condition": "id % 3 <> 0 AND name <> 'n4'"}, {"condition": "nome = 'n1'"}),
    # It cannot take rows away; those that it cannot work on are bad.
    "select": Examples(
        {"columns": ["name AS called", "id", "CASE WHEN id % 5 = 0 THEN error('no fives') ELSE id * 2 END AS double"]},
        {"columns": ["id", "count(*) AS records"]},
    ),
    "sql": Examples(
        {"file": "some.sql", "text": "SELECT * RENAME (id AS number), upper(name) AS big FROM batch WHERE id > 7"},
        {"file": "some.sql", "text": "SELECT DISTINCT name FROM batch"},
    ),
    "python": Examples(
        {"function": "rows:first_names", "code": CODE, "columns": None, **LIMITS},
        {"function": "rows:first_names", "code": CODE, "columns": {"id": "NUMBERISH"}, **LIMITS},
    ),
    "spark": Examples(
        {"function": "rows:some", "code": CODE, "columns": None},
        {"function": "rows:some", "code": CODE, "columns": {"id": "NUMBERISH"}},
    ),
    "explode": Examples({"column": "tags", "keep_empty": False}, {"column": "name", "keep_empty": False}),
    "dedupe": Examples(
        {"keys": ["name"], "keep": "first", "within_us": None}, {"keys": ["nome"], "keep": "first", "within_us": None}
    ),
}


def test_every_registered_transform_has_examples() -> None:
    assert set(TRANSFORMS) <= set(EXAMPLES)


@pytest.fixture(autouse=True)
def _the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSFORMS, "toy", "tests.toys.toy_transform")


@pytest.fixture(params=list(EXAMPLES), ids=str)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


def rows(count: int, *, first: int = 0) -> pa.RecordBatch:
    """Rows as the processor hands them over, every seventh a tombstone's."""
    offsets = range(first, first + count)
    return pa.RecordBatch.from_pylist(
        [
            {
                "_topic": "t", "_partition": 0, "_offset": at, "_timestamp": NOON + timedelta(seconds=at),
                "_key": b"k", "_manifest_id": 7, "_is_deleted": at % 7 == 6,
                "id": at, "name": None if at % 7 == 6 else f"n{at % 10}",
                "tags": [None, [], ["a"], ["b", None], ["a"]][0 if at % 7 == 6 else at % 5],
            }
            for at in offsets
        ],
        schema=pa.schema([*METADATA, DELETED, *DATA]),
    )  # fmt: skip


def opened(kind: str) -> Transform:
    transform = open_transform(TransformOrder(kind, EXAMPLES[kind].options))
    transform.schema(DATA)
    return transform


def with_made(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With what Spark made of the rows: it took some away, and no deletion."""
    went = pc.and_(pc.equal(pc.bit_wise_and(batch.column("id"), 3), 1), pc.invert(batch.column(DELETED.name)))
    made = pa.StructArray.from_arrays([batch.column(field.name) for field in DATA], fields=list(DATA), mask=went)
    return batch.append_column(MADE, made)


def once(kept: list[int]) -> list[int]:
    """A row that several rows were made of counts once."""
    return sorted({*kept})


def check(transform: Transform, batch: pa.RecordBatch) -> Transformed:
    """Apply, and hold the result to what is true of every result."""
    made = transform.apply(with_made(batch) if isinstance(transform, OnFrames) else batch)
    assert made.kept.to_pylist() == sorted(made.kept.to_pylist())
    places = [once(made.kept.to_pylist()), made.filtered.to_pylist(), made.deduplicated.to_pylist()]
    places.append([error.index for error in made.errors])
    assert all(error.error is ErrorClass.TRANSFORM and error.reason for error in made.errors)
    assert all(indices.type == pa.int64() for indices in (made.kept, made.filtered, made.deduplicated))
    assert all(part == sorted(part) for part in places)
    assert sorted(at for part in places for at in part) == list(range(batch.num_rows)), (
        "each row in one of them, and none twice"
    )
    assert made.rows.num_rows == len(made.kept)
    assert made.rows.schema == transform.schema(DATA)
    assert made.rows.validate(full=True) is None
    return made


def test_each_row_stays_or_is_told_as_taken_away(kind: str) -> None:
    made = check(opened(kind), rows(40))
    assert 0 < made.rows.num_rows < 40


def test_no_column_looks_like_a_metadata_column(kind: str) -> None:
    assert not [name for name in opened(kind).schema(DATA).names if name.startswith("_")]


def test_a_batch_without_rows_is_no_rows(kind: str) -> None:
    assert check(opened(kind), rows(0)).rows.num_rows == 0


def test_the_bounds_of_batches_change_nothing(kind: str) -> None:
    whole = check(opened(kind), rows(40)).rows.to_pylist()
    in_parts = opened(kind)
    assert [row for first in range(0, 40, 8) for row in check(in_parts, rows(8, first=first)).rows.to_pylist()] == whole


def test_a_task_that_is_tried_again_makes_the_same(kind: str) -> None:
    assert check(opened(kind), rows(40)) == check(opened(kind), rows(40))


def test_options_that_do_not_fit_the_rows_are_refused_before_a_row_comes(kind: str) -> None:
    with pytest.raises(ConfigurationError):
        open_transform(TransformOrder(kind, EXAMPLES[kind].wrong)).schema(DATA)


def test_a_transform_that_is_not_registered_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"no transform of kind 'toi' is installed here"):
        open_transform(TransformOrder("toi", {}))


def test_the_pass_with_its_place_for_transforms_needs_only_the_standard_library_and_pyarrow() -> None:
    look = (
        "import sys, tidemark.processing.processor; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
    )
    drivers = ["airflow", "boto3", "click", "confluent_kafka", "psycopg", "pydantic", "pyspark", "rich", "yaml"]
    done = subprocess.run([sys.executable, "-c", look, *drivers, "pyarrow"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pyarrow"]


@pytest.mark.parametrize("keep_empty", [False, True])
def test_explode_makes_a_row_of_each_element_and_says_what_becomes_of_empty_arrays(keep_empty: bool) -> None:
    transform = open_transform(TransformOrder("explode", {"column": "tags", "keep_empty": keep_empty}))
    assert transform.schema(DATA).field("tags").type == pa.string()
    given = rows(12).slice(1)  # as a slice, whose lists do not begin at their first element
    made = check(transform, given)
    expected = []
    for at, row in enumerate(given.to_pylist()):
        elements = row["tags"] or ([None] if keep_empty else [])
        expected += [(at, row["id"], row["name"], element) for element in elements]
    values = [made.rows.column(name).to_pylist() for name in ("id", "name", "tags")]
    assert list(zip(made.kept.to_pylist(), *values, strict=True)) == expected
    assert len(made.filtered) == (0 if keep_empty else 5)
