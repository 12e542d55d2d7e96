"""Columns of which all moments lie in January 1970, because numbers were read in another unit than their own."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tidemark.model.record_schema import HEADERS
from tidemark.processing.early_moments import early_moments

REAL, READ_AS_US, SECONDS_AS_MS = "2026-05-01T10:00:00Z", "1970-01-21T13:00:00Z", "1970-01-21T13:00:00.5Z"


def early(schema: str, *values: dict[str, Any]) -> list[str]:
    decode = {"format": "json", "schema": schema, "unknown_fields": "count"}
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * len(values),
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array([json.dumps(value).encode() for value in values], pa.binary()),
            "headers": pa.nulls(len(values), HEADERS),
        }
    )
    return [str(column) for column in early_moments(decode, batch)]


def test_a_column_is_told_with_its_number_of_moments() -> None:
    rows = ({"at": READ_AS_US}, {"at": None}, {"at": SECONDS_AS_MS}, {})
    assert early("at TIMESTAMP, day DATE", *rows) == ["column at: all 2 moments lie in January 1970"]
    assert early("at TIMESTAMP", *rows[:2]) == ["column at: the only moment lies in January 1970"]


@pytest.mark.parametrize(
    ("schema", "of", "path"),
    [
        ("at ARRAY<TIMESTAMP>", lambda moment: [None, moment], "at[]"),
        ("at STRUCT<x: TIMESTAMP>", lambda moment: {"x": moment}, "at.x"),
        ("at MAP<STRING, TIMESTAMP>", lambda moment: {"k": moment}, "at[]"),
    ],
)
def test_moments_inside_of_a_column_are_looked_at(schema: str, of: Any, path: str) -> None:
    assert early(schema, {"at": of(READ_AS_US)}) == [f"column {path}: the only moment lies in January 1970"]
    assert early(schema, {"at": of(READ_AS_US)}, {"at": of(REAL)}) == []


@pytest.mark.parametrize("moment", [REAL, "1969-12-31T23:59:59.999999Z", "1970-02-01T00:00:00Z", None])
def test_one_moment_of_another_time_is_enough(moment: str | None) -> None:
    assert early("at TIMESTAMP", {"at": moment}) == []
    assert (early("at TIMESTAMP", {"at": READ_AS_US}, {"at": moment}) == []) is (moment is not None)


def test_records_that_cannot_be_decoded_have_no_moments() -> None:
    assert early("at TIMESTAMP NOT NULL", {"at": "x"}, {}) == []
