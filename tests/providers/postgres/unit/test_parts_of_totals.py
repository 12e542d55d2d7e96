"""What totals are made of: the words of a pipeline file, and the groups of a task."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.unit.pipeline_text import GOOD
from tidemark.errors import ConfigurationError
from tidemark.pipeline.loader import load
from tidemark.providers.postgres.aggregates.aggregate import Aggregate
from tidemark.providers.postgres.aggregates.groups import Groups
from tidemark.providers.postgres.aggregates.value_columns import Function, ValueColumn, value_columns

SCHEMA = "k BIGINT NOT NULL, also STRING, price DECIMAL(10, 2), weight DOUBLE, tags ARRAY<STRING>, flag BOOLEAN"
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def entry(**changes: Any) -> dict[str, Any]:
    aggregate = {"group_by": ["k"], "values": {"records": "count"}, **changes.pop("aggregate", {})}
    return {"connection": "warehouse", "table": "totals", "aggregate": aggregate, **changes}


def pipeline(write: Callable[..., Path], **changes: Any) -> Path:
    raw = yaml.safe_load(GOOD)
    raw["decode"] = {"format": "json", "schema": SCHEMA, **changes.pop("decode", {})}
    return write(yaml.safe_dump({**raw, "event_time": {}, "sinks": [{"totals": entry(**changes)}]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate": {"group_by": []}}, "group_by: is missing, and so is window"),
        ({"aggregate": {"group_by": ["k", "k"]}}, "group_by: must name each column once"),
        ({"aggregate": {"group_by": ["kk"]}}, "has no column kk for its group_by"),
        ({"aggregate": {"group_by": ["also"]}}, "may not have also in its group_by: it can be null"),
        ({"aggregate": {"group_by": ["window_start"]}}, "may not have window_start"),
        ({"aggregate": {"window": "0s"}}, "window: must be 1s or longer"),
        ({"aggregate": {"values": {}}}, "values: must have at least one entry"),
        ({"aggregate": {"values": {"k": "count"}}}, "gives a second column k"),
        ({"aggregate": {"values": {"a": "average(price)", "a_sum": "count"}}}, "gives a second column a_sum"),
        ({"aggregate": {"values": {"_rows": "count"}}}, "must be a column of 1 to 56"),
        ({"aggregate": {"values": {"a": "median(price)"}}}, "must be count, or one of count, sum"),
        ({"aggregate": {"values": {"a": "sum(cost)"}}}, "has no column cost for its values"),
        ({"aggregate": {"values": {"a": "sum(weight)"}}}, "only whole numbers and decimals have one exact sum"),
        ({"aggregate": {"values": {"a": "average(also)"}}}, "may not add up also: it is string"),
        ({"aggregate": {"values": {"a": "min(flag)"}}}, "may not have min(flag): it is bool"),
        ({"aggregate": {"values": {"a": "max(tags)"}}}, "may not have max(tags): it is list"),
        ({"decode": {"tombstones": ["k"]}}, "may not have decode.tombstones"),
        ({"table": "t" * 60}, "must be short enough for a second table"),
        ({"max_keys": 0}, "max_keys"),
    ],
)
def test_what_cannot_be_added_up_is_refused_with_its_key(
    write: Callable[..., Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(pipeline(write, **changes), {})
    assert message in str(refused.value)


def test_totals_and_a_table_may_not_write_the_same_table(write: Callable[..., Path]) -> None:
    raw = yaml.safe_load(pipeline(write).read_text())
    raw["sinks"].append({"postgres": {"connection": "warehouse", "table": "totals_contributions", "key": ["k"]}})
    with pytest.raises(ConfigurationError, match="totals"):
        load(write(yaml.safe_dump(raw)), {})


def test_only_what_decides_the_totals_decides_the_fingerprint(write: Callable[..., Path]) -> None:
    def fingerprint(**changes: Any) -> str:
        return load(pipeline(write, **changes), {}).fingerprint()

    assert fingerprint() == fingerprint(max_keys=5) == fingerprint(auto_create=True)
    assert fingerprint() != fingerprint(aggregate={"window": "1h"})


def test_an_average_is_kept_as_sum_and_count() -> None:
    assert list(value_columns({"a": "average(price)"})) == [
        ValueColumn("a_sum", Function.SUM, "price"),
        ValueColumn("a_count", Function.COUNT, "price"),
    ]


VALUES = {
    "records": "count", "priced": "count(price)", "cost": "sum(price)", "whole": "sum(n)", "least": "min(weight)",
    "most": "max(weight)", "first": "min(also)", "last": "max(also)", "mean": "average(price)",
}  # fmt: skip
KINDS = pa.schema(
    [("k", pa.int64()), ("n", pa.int64()), ("also", pa.string()), ("price", pa.decimal128(38, 2)),
     ("weight", pa.float64())]
)  # fmt: skip


def groups(window: str | None = None, most: int = 1000) -> Groups:
    aggregate = Aggregate.model_validate({"group_by": ["k"], "window": window, "values": VALUES})
    options = aggregate.order()
    return Groups(options["group_by"], options["window_s"], list(aggregate.value_columns), most)


def totals(made: Groups, rows: list[dict[str, Any]], batch: int, when: list[datetime] | None = None) -> dict[Any, Any]:
    """What all staged groups come to, combined by another ``Groups`` without a bound, as publishing does."""
    times = pa.array(when or [NOON] * len(rows), pa.timestamp("us", "UTC"))
    staged = []
    for start in range(0, len(rows), batch):
        taken = pa.RecordBatch.from_pylist(rows[start : start + batch], schema=KINDS)
        staged.append(made.take(made.inputs(taken, times[start : start + batch])))
    made._waiting += [table for table in staged if table is not None]
    rest = made.rest()
    assert rest is not None
    key = ["k", "window_start"] if "window_start" in rest.schema.names else ["k"]
    return {tuple(row.pop(name) for name in key): row for row in rest.to_pylist()}


@pytest.mark.thorough
def test_totals_are_the_same_however_rows_come_in_batches_and_are_staged() -> None:
    dice = random.Random(7)
    rows = [
        {"k": dice.randrange(40), "n": dice.randrange(-(2**63), 2**63), "also": dice.choice([None, "é", "z", "Z", ""]),
         "price": dice.choice([None, Decimal("-1.25"), Decimal("3.50")]), "weight": dice.choice([None, -0.0, 2.5])}
        for _ in range(500)
    ]  # fmt: skip
    whole = totals(groups(), rows, 500)
    assert totals(groups(most=30), rows, 7) == whole == totals(groups(most=1), rows, 1)
    for key, row in whole.items():
        mine = [entry for entry in rows if (entry["k"],) == key]
        prices = [entry["price"] for entry in mine if entry["price"] is not None]
        texts = [entry["also"].encode() for entry in mine if entry["also"] is not None]
        assert (row["_rows"], row["records"], row["priced"], row["mean_count"]) == (
            len(mine), len(mine), len(prices), len(prices),
        )  # fmt: skip
        assert row["cost"] == row["mean_sum"] == sum(prices)
        assert row["whole"] == sum(entry["n"] for entry in mine)
        assert (row["first"].encode(), row["last"].encode()) == (min(texts), max(texts)), "by bytes"


def test_the_bound_on_groups_in_memory_holds_and_what_is_beyond_is_staged() -> None:
    made = groups(most=50)
    staged = 0
    for start in range(0, 1000, 20):
        rows = [{"k": key, "n": 1, "also": None, "price": None, "weight": None} for key in range(start, start + 20)]
        batch = pa.RecordBatch.from_pylist(rows, schema=KINDS)
        taken = made.take(made.inputs(batch, pa.array([NOON] * 20, pa.timestamp("us", "UTC"))))
        staged += taken.num_rows if taken is not None else 0
        assert sum(table.num_rows for table in made._waiting) <= 50
    assert staged >= 950


def test_a_sum_never_wraps() -> None:
    rows = [{"k": 1, "n": 2**63 - 1, "also": None, "price": Decimal("9" * 36), "weight": None}] * 1000
    [row] = totals(groups(most=1), rows, 10).values()
    assert row["whole"] == 1000 * (2**63 - 1)
    assert row["cost"] == row["mean_sum"] == Decimal(1000 * (10**36 - 1))


def test_nan_is_no_value() -> None:
    rows = [{"k": 1, "n": 1, "also": None, "price": None, "weight": weight} for weight in (float("nan"), 2.0, 1.0)]
    rows.append({"k": 2, "n": 1, "also": None, "price": None, "weight": float("nan")})
    made = totals(groups(), rows, 1)
    assert [(row["least"], row["most"]) for row in made.values()] == [(1.0, 2.0), (None, None)]


@pytest.mark.parametrize(
    ("when", "start"),
    [
        (NOON, NOON),
        (NOON + timedelta(minutes=59, seconds=59, microseconds=999_999), NOON),
        (datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1969, 12, 31, 23, tzinfo=UTC)),
        (datetime(9999, 12, 31, 23, 30, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)),
    ],
)
def test_a_window_begins_at_a_whole_number_of_windows_since_1970(when: datetime, start: datetime) -> None:
    rows = [{"k": 1, "n": 1, "also": None, "price": None, "weight": None}]
    assert list(totals(groups("1h"), rows, 1, [when])) == [(1, start)]


@pytest.mark.parametrize("key", [".b", ".b.c", "of b", "sum total", "[b", "a.b"])
def test_a_key_may_look_like_a_path_or_like_a_column_of_ours(key: str) -> None:
    aggregate = Aggregate.model_validate({"group_by": [key], "values": {"total": "sum(b)"}})
    made = Groups([key], None, list(aggregate.value_columns), 1)
    columns = pa.schema([("b", pa.int64()), (key, pa.string())])
    for rows in ([{"b": 1, key: "x"}, {"b": 1, key: "y"}], [{"b": 5, key: "x"}]):
        batch = pa.RecordBatch.from_pylist(rows, schema=columns)
        taken = made.take(made.inputs(batch, pa.array([NOON] * len(rows), pa.timestamp("us", "UTC"))))
        made._waiting += [] if taken is None else [taken]
    rest = made.rest()
    assert rest is not None
    assert {row[key]: row["total"] for row in rest.to_pylist()} == {"x": 6, "y": 1}
