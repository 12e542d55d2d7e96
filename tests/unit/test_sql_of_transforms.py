"""What SQL may say over the rows of a batch, and what becomes of types, nulls, tombstones and bad rows."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemark.decoders.base import ErrorClass
from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.transforms import halving
from tidemark.transforms.base import Transformed
from tidemark.transforms.query import Query

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
GIVEN = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("city", pa.string())])),
        pa.field("seen", pa.timestamp("us", "UTC")),
    ]
)
METADATA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_key", pa.binary()),
        ("_manifest_id", pa.int64()),
        ("_deleted", pa.bool_()),
    ]
)


def batch(count: int = 6, **changes: Sequence[Any]) -> pa.RecordBatch:
    """Rows 0, 1, ..; ``changes`` replace the values of columns."""
    rows = [
        {
            "_topic": "t", "_partition": 0, "_offset": 100 + at, "_timestamp": NOON, "_key": b"k", "_manifest_id": 7,
            "_deleted": False, "id": at, "name": f"n{at}", "price": at / 2, "tags": ["a", f"t{at}"],
            "place": {"city": "Ulm"}, "seen": NOON, **{name: values[at] for name, values in changes.items()},
        }
        for at in range(count)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, pa.schema([*METADATA, *GIVEN]))


def run(text: str, rows: pa.RecordBatch | None = None) -> Transformed:
    query = Query(text)
    schema = query.schema(GIVEN)
    made = query.apply(batch() if rows is None else rows)
    assert made.rows.schema == schema
    return made


def values(text: str, rows: pa.RecordBatch | None = None) -> list[Any]:
    """The only column of a result."""
    [column] = run(f"SELECT {text} AS made FROM batch", rows).rows.columns
    return column.to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS c FROM batch",
        "SELECT sum(id) FILTER (WHERE id > 1) AS s FROM batch",
        "SELECT id FROM batch GROUP BY id",
        "SELECT id FROM batch GROUP BY ALL",
        "SELECT id FROM batch HAVING true",
        "SELECT DISTINCT id FROM batch",
        "SELECT DISTINCT ON (name) id FROM batch",
        "SELECT id FROM batch ORDER BY id",
        "SELECT id FROM batch LIMIT 3",
        "SELECT row_number() OVER () AS r FROM batch",
        "SELECT id FROM batch QUALIFY true",
        "SELECT (SELECT 1) AS one FROM batch",
        "SELECT id FROM batch WHERE id IN (SELECT 1)",
        "SELECT id FROM batch WHERE EXISTS (FROM batch)",
        "SELECT a.id FROM batch a",
        "SELECT batch.id FROM batch, batch AS other",
        "SELECT batch.id FROM batch JOIN batch AS other USING (id)",
        "SELECT id FROM batch UNION ALL SELECT id FROM batch",
        "SELECT id FROM batch USING SAMPLE 3",
        "SELECT id FROM batch TABLESAMPLE 10%",
        "WITH x AS (FROM batch) SELECT id FROM x",
        "SELECT 1 AS one",
        "VALUES (1)",
        "SELECT unnest(tags) AS tag FROM batch",
        "SELECT geomean(id) AS hidden_in_a_macro FROM batch",
        "SELECT random() AS r FROM batch",
        "SELECT list_transform(tags, lambda t: t || random()::VARCHAR) AS r FROM batch",
        "SELECT now() AS t FROM batch",
        "SELECT current_date AS t FROM batch",
        "SELECT current_timestamp AS t FROM batch",
        "SELECT ago(INTERVAL 1 DAY) AS hidden_in_a_macro FROM batch",
        "SELECT age(seen) AS t FROM batch",
        "SELECT uuid() AS u FROM batch",
        "SELECT getvariable('x') AS u FROM batch",
        "SELECT nextval('x') AS u FROM batch",
        "SELECT rowid FROM batch",
        "SELECT _ordinal AS o FROM batch",
        "SELECT _manifest_id AS differs_in_no_replay_but_is_not_the_record FROM batch",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "FROM duckdb_settings()",
        "SELECT content FROM read_text('/etc/passwd')",
        "COPY batch TO '/tmp/rows.csv'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET memory_limit = '10GB'",
        "SELECT id FROM batch; SELECT id FROM batch",
        "SELECT id FROM other",
        "SELECT nope FROM batch",
        "SELECT nope(id) AS n FROM batch",
        "SELECT id + 1 FROM batch",
        "SELECT id, name AS ID FROM batch",
        "SELECT _offset FROM batch",
        "SELECT id AS _id FROM batch",
        "SELECT COLUMNS('i.*') FROM batch",
        "SELECT $1 AS p FROM batch",
        "SELECT #1 AS p FROM batch",
        "SELECT NULL AS n FROM batch",
        "SELECT hash(id) AS unsigned FROM batch",
        "SELECT seen - seen AS between FROM batch",
        "SELECT id - name AS n FROM batch WHERE place = 3",
        "SELEC",
        "",
    ],
)
def test_sql_that_is_not_row_by_row_or_not_repeatable_is_refused_before_a_row_comes(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Query(text).schema(GIVEN)


def test_a_refusal_says_what_it_is_about() -> None:
    for text, expected in [
        ("SELECT max(id) AS m FROM batch", r"^max\(\) works on several rows; each row must come from one record"),
        ("SELECT id FROM batch ORDER BY 1", "^it has ORDER BY"),
        ("SELECT nmae FROM batch", 'did you mean "name"'),
        ("SELECT now() AS t FROM batch", "a replay would make other rows"),
        ("SELECT * FROM 'x.csv'", "no file"),
        ("SELECT geomean(id) AS g FROM batch", r"avg\(\) \(by way of geomean\(\)\)"),
    ]:
        with pytest.raises(ConfigurationError, match=expected) as refused:
            Query(text).schema(GIVEN)
        assert refused.value.next_step


def test_a_column_that_is_only_named_or_renamed_keeps_its_type_and_that_it_is_never_null() -> None:
    stars = "* EXCLUDE (name) REPLACE (price * 2 AS price) RENAME (id AS number)"
    schema = Query(f"SELECT {stars} FROM batch").schema(GIVEN)
    assert schema.names == ["number", "price", "tags", "place", "seen"]
    assert schema.field("number") == GIVEN.field("id").with_name("number")
    assert schema.field("place") == GIVEN.field("place")
    assert schema.field("price").nullable
    assert Query("SELECT ID FROM batch").schema(GIVEN).names == ["id"]
    assert not Query("SELECT coalesce(name, '') AS name FROM batch").schema(GIVEN).field("name").nullable
    assert Query("SELECT coalesce(name, NULL) AS name FROM batch").schema(GIVEN).field("name").nullable


@pytest.mark.parametrize(
    ("expression", "expected", "first"),
    [
        ("id + 1", pa.int64(), 1),
        ("id::UTINYINT", pa.int16(), 0),
        ("1 / id", pa.float64(), float("inf")),
        ("CAST(price AS DECIMAL(18, 2))", pa.decimal128(18, 2), Decimal("0.00")),
        ("seen + INTERVAL 1 HOUR", pa.timestamp("us", "UTC"), NOON.replace(hour=13)),
        ("seen::TIMESTAMP", pa.timestamp("us"), NOON.replace(tzinfo=None)),
        ("date_trunc('day', seen)", pa.timestamp("us", "UTC"), NOON.replace(hour=0)),
        ("seen::DATE", pa.date32(), NOON.date()),
        ("upper(name)", pa.string(), "N0"),
        ("encode(name)", pa.binary(), b"n0"),
        ("place.city", pa.string(), "Ulm"),
        ("to_json(place)", pa.string(), '{"city":"Ulm"}'),
        ("list_transform(tags, lambda t: t || name)", pa.list_(pa.field("element", pa.string())), ["an0", "t0n0"]),
        ("{'a': id, 'b': tags}", None, {"a": 0, "b": ["a", "t0"]}),
        ("split_part(name, 'n', 2)", pa.string(), "0"),
        ("CASE WHEN id BETWEEN 1 AND 2 OR name IN ('x', 'n0') THEN _offset END", pa.int64(), 100),
        ("TRY_CAST(name AS BIGINT)", pa.int64(), None),
        ("TRY(CAST(name AS BIGINT))", pa.int64(), None),
        ("regexp_extract(name, '[0-9]+')", pa.string(), "0"),
        ("nullif(id, 0)", pa.int64(), None),
        ("_key", pa.binary(), b"k"),
    ],
)
def test_types_are_those_that_sinks_store(expression: str, expected: pa.DataType | None, first: object) -> None:
    made = run(f"SELECT {expression} AS made FROM batch")
    assert expected is None or made.rows.schema.field("made").type == expected
    assert made.rows.column("made")[0].as_py() == first


def test_nan_is_compared_as_sql_does_it_and_not_as_arrow_does() -> None:
    rows = batch(3, price=[float("nan"), 1.0, None])
    assert run("SELECT id FROM batch WHERE price > 1e300", rows).kept.to_pylist() == [0]
    assert run("SELECT id FROM batch WHERE price = price", rows).kept.to_pylist() == [0, 1]


def test_a_row_goes_where_the_condition_is_false_or_null_and_a_tombstone_stays() -> None:
    rows = batch(4, price=[None, 1.0, 9.0, None], _deleted=[False, False, False, True])
    made = run("SELECT * FROM batch WHERE price > 5", rows)
    assert (made.kept.to_pylist(), made.filtered.to_pylist()) == ([2, 3], [0, 1])


def test_a_row_that_fails_is_found_alone_and_its_reason_repeats_no_data() -> None:
    names = [str(at) for at in range(1000)]
    names[17], names[900] = "secret", "other"
    rows = batch(1000, name=names)
    made = run("SELECT CAST(name AS BIGINT) AS n FROM batch WHERE id <> 5", rows)
    assert [error.index for error in made.errors] == [17, 900]
    assert {error.error for error in made.errors} == {ErrorClass.TRANSFORM}
    assert made.errors[0].reason.startswith("Conversion Error: Could not convert string '..' to INT64")
    assert made.filtered.to_pylist() == [5]
    assert made.rows.column("n").to_pylist() == [at for at in range(1000) if at not in (5, 17, 900)]


def test_a_row_that_says_itself_that_it_is_bad() -> None:
    made = run("SELECT CASE WHEN price < 1 THEN error('too cheap') ELSE id END AS id FROM batch")
    assert [(error.index, error.reason) for error in made.errors] == [
        (0, "Invalid Input Error: too cheap"), (1, "Invalid Input Error: too cheap"),
    ]  # fmt: skip


def test_logic_that_fails_on_everything_fails_the_attempt_instead_of_burying_all_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halving, "BUDGET", 20)
    with pytest.raises(WorkFailed, match=r"fails on \d+ records of a batch, and on more"):
        run("SELECT CAST(name AS BIGINT) AS n FROM batch", batch(100))


def test_columns_that_only_differ_by_capitals_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="capitals only"):
        Query("SELECT * FROM batch").schema(pa.schema([("a", pa.int64()), ("A", pa.int64())]))


def test_a_statement_may_read_metadata_and_name_the_view() -> None:
    assert values("name || _offset", batch(2)) == ["n0100", "n1101"]
    assert values("batch.id", batch(2)) == [0, 1]
