"""What SQL may say over the rows of a batch, and what becomes of types, nulls, tombstones and bad rows."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice, product
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tidemark.decoders.base import ErrorClass
from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.model.storable import Storable
from tidemark.processing.storable import rows_not_storable
from tidemark.transforms import halving
from tidemark.transforms.base import Transformed
from tidemark.transforms.functions import is_allowed
from tidemark.transforms.query import Query
from tidemark.transforms.statement import connect

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
        ("_is_deleted", pa.bool_()),
    ]
)


def batch(count: int = 6, **changes: Sequence[Any]) -> pa.RecordBatch:
    """Rows 0, 1, ..; ``changes`` replace the values of columns."""
    rows = [
        {
            "_topic": "t", "_partition": 0, "_offset": 100 + at, "_timestamp": NOON, "_key": b"k", "_manifest_id": 7,
            "_is_deleted": False, "id": at, "name": f"n{at}", "price": at / 2, "tags": ["a", f"t{at}"],
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
        "SELECT current_localtimestamp() AS duckdb_calls_it_consistent FROM batch",
        "SELECT current_localtime() AS duckdb_calls_it_consistent FROM batch",
        "SELECT name || current_localtimestamp() AS t FROM batch",
        "SELECT list_transform(tags, lambda t: t || current_localtime()) AS t FROM batch",
        "SELECT id FROM batch WHERE current_localtimestamp() > seen::TIMESTAMP",
        "SELECT seen.age() AS called_as_a_method FROM batch",
        "SELECT batch.seen.age() AS t FROM batch",
        "SELECT seen.main.age() AS t FROM batch",
        "SELECT main.age(seen) AS t FROM batch",
        "SELECT list_transform([seen], lambda x: x.age()) AS t FROM batch",
        "SELECT id FROM batch WHERE seen.age() > INTERVAL 1 DAY",
        "SELECT _ordinal.to_hex() AS the_place_in_its_batch FROM batch",
        "SELECT no_column.abs() AS t FROM batch",
        "SELECT to_json(current_timestamp) -> '$' AS left_of_an_arrow FROM batch",
        "SELECT to_json(current_user) -> '$' AS t FROM batch",
        "SELECT to_json(_ordinal) -> '$' AS t FROM batch",
        "SELECT _ordinal -> '$' AS t FROM batch",
        "SELECT to_json(batch) -> '$' AS t FROM batch",
        "SELECT batch._ordinal -> '$' AS t FROM batch",
        "SELECT CAST(_ordinal AS JSON) -> '$' AS t FROM batch",
        "SELECT to_json(now()) -> '$' AS t FROM batch",
        "SELECT name || ((to_json(_ordinal) -> '$') -> '$')::VARCHAR AS t FROM batch",
        "SELECT list_transform(tags, lambda t: to_json([t, current_user]) -> '$[1]') AS t FROM batch",
        "SELECT id FROM batch WHERE (to_json(_ordinal) -> '$')::VARCHAR = '0'",
        "SELECT list_transform(tags, t -> t || 'a') AS a_lambda_of_old FROM batch",
        "SELECT list_transform(tags, (t, at) -> at) AS t FROM batch",
        "SELECT list_transform(tags, name -> name) AS t FROM batch",
        "SELECT localtime AS t FROM batch",
        "SELECT localtimestamp AS t FROM batch",
        "SELECT current_time AS t FROM batch",
        "SELECT today() AS t FROM batch",
        "SELECT get_current_timestamp() AS t FROM batch",
        "SELECT transaction_timestamp() AS t FROM batch",
        "SELECT current_user AS u FROM batch",
        "SELECT current_user() AS u FROM batch",
        "SELECT user AS u FROM batch",
        "SELECT pg_catalog.current_role() AS u FROM batch",
        "SELECT current_database() AS u FROM batch",
        "SELECT current_setting('threads') AS u FROM batch",
        "SELECT version() AS of_duckdb FROM batch",
        "SELECT txid_current() AS u FROM batch",
        "SELECT pg_postmaster_start_time() AS t FROM batch",
        "SELECT getenv('HOME') AS u FROM batch",
        "SELECT list_aggr(tags, 'reservoir_quantile', 0.5) AS r FROM batch",
        "SELECT list_aggregate(tags, 'su' || 'm') AS r FROM batch",
        "SELECT list_aggr(tags, name) AS r FROM batch",
        "SELECT list_aggr(tags) AS r FROM batch",
        "SELECT json_serialize_plan(name) AS r FROM batch",
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
        ("SELECT current_localtime() AS t FROM batch", r"^current_localtime\(\) gives another result each time"),
        (
            "SELECT version() AS t FROM batch",
            r"^version\(\) is not among the functions that are known to give the same",
        ),
        ("SELECT list_aggr(tags, 'x') AS t FROM batch", r"^list_aggr\(\) names no aggregate that is known"),
        ("SELECT to_json(current_timestamp) -> '$' AS t FROM batch", "^current_timestamp gives another result each"),
        ("SELECT list_transform(tags, t -> t) AS t FROM batch", "^there is no column t"),
        ("SELECT * FROM 'x.csv'", "no file"),
        ("SELECT geomean(id) AS g FROM batch", r"avg\(\) \(by way of geomean\(\)\)"),
    ]:
        with pytest.raises(ConfigurationError, match=expected) as refused:
            Query(text).schema(GIVEN)
        assert refused.value.next_step


def test_a_lambda_of_old_is_refused_with_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Query("SELECT list_transform(tags, t -> upper(t)) AS t FROM batch").schema(GIVEN)
    assert refused.value.next_step.endswith("a lambda is written lambda t: .. (DuckDB 2)")
    assert values("list_transform(tags, lambda t: upper(t))")[1] == ["A", "T1"]


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
        ("(to_json(place) -> '$.city')::VARCHAR", pa.string(), '"Ulm"'),
        ("(place::JSON -> '$' -> '$.city')::VARCHAR", pa.string(), '"Ulm"'),
        ("(batch.place::JSON -> '$.city')::VARCHAR", pa.string(), '"Ulm"'),
        ("place::JSON ->> '$.city'", pa.string(), "Ulm"),
        ("(to_json(list_transform(tags, lambda t: t || 'b')) -> '$[0]')::VARCHAR", pa.string(), '"ab"'),
        ("list_transform(tags, lambda t: (to_json(t) -> '$')::VARCHAR)[1]", pa.string(), '"a"'),
        ("list_transform([place::JSON], lambda p: (p -> '$.city')::VARCHAR)[1]", pa.string(), '"Ulm"'),
        ("list_transform(tags, lambda t: t || name)", pa.list_(pa.field("element", pa.string())), ["an0", "t0n0"]),
        ("{'a': id, 'b': tags}", None, {"a": 0, "b": ["a", "t0"]}),
        ("split_part(name, 'n', 2)", pa.string(), "0"),
        ("CASE WHEN id BETWEEN 1 AND 2 OR name IN ('x', 'n0') THEN _offset END", pa.int64(), 100),
        ("TRY_CAST(name AS BIGINT)", pa.int64(), None),
        ("TRY(CAST(name AS BIGINT))", pa.int64(), None),
        ("regexp_extract(name, '[0-9]+')", pa.string(), "0"),
        ("nullif(id, 0)", pa.int64(), None),
        ("_key", pa.binary(), b"k"),
        ("list_aggr([id, 5], 'sum')::BIGINT", pa.int64(), 5),
        ("list_max([id, 5])", pa.int64(), 5),
        ("array_to_string(tags, '-')", pa.string(), "a-t0"),
        ("age(seen::TIMESTAMP, TIMESTAMP '2024-03-01')::VARCHAR", pa.string(), "12:00:00"),
        ("name COLLATE NOCASE = 'N0'", pa.bool_(), True),
        ("epoch_ms(seen)", pa.int64(), 1_709_294_400_000),
        ("'epoch'::TIMESTAMP", pa.timestamp("us"), datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
    ],
)
def test_types_are_those_that_sinks_store(expression: str, expected: pa.DataType | None, first: object) -> None:
    made = run(f"SELECT {expression} AS made FROM batch")
    assert expected is None or made.rows.schema.field("made").type == expected
    assert made.rows.column("made")[0].as_py() == first


@pytest.mark.thorough
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("unit", ["TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMPTZ", "DATE"])
@pytest.mark.parametrize("place", ["{}", "[{}]", "[NULL, [{}]]", "{{'a': {}}}", "MAP {{'k': {}}}", "[{}]::{unit}[1]"])
def test_a_time_without_an_end_is_a_dead_letter_in_every_unit_and_place(sign: str, unit: str, place: str) -> None:
    def stored(text: str) -> list[int]:
        value = place.format(f"{unit} '{text}'", unit=unit)
        made = run(f"SELECT {value} AS made FROM batch")
        assert made.errors == ()
        return [bad.index for bad in rows_not_storable(made.rows, (Storable(),))]

    assert stored(f"{sign}infinity") == list(range(batch().num_rows))
    assert stored("2024-03-01") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TIMESTAMP_NS '1969-12-31 23:59:59.999999999'", "1970-01-01 00:00:00"),
        ("[TIMESTAMP_NS '2024-03-01 12:00:00.123456789']", ["2024-03-01 12:00:00.123456"]),
        ("{'a': [TIMESTAMP_NS '2024-03-01 12:00:00.123456789', NULL]}", {"a": ["2024-03-01 12:00:00.123456", None]}),
        ("MAP {'k': TIMESTAMP_S '1582-10-10'}", [("k", "1582-10-10 00:00:00")]),
        ("[TIMESTAMP_MS '9999-12-31 23:59:59.999', NULL]::TIMESTAMP_MS[2]", ["9999-12-31 23:59:59.999000", None]),
        ("CASE WHEN id < 0 THEN [TIMESTAMP_NS '2024-03-01'] END", None),
    ],
)
def test_times_of_other_units_are_microseconds_at_any_depth(text: str, expected: object) -> None:
    made = run(f"SELECT {text} AS made FROM batch")
    assert made.errors == ()
    assert str(made.rows.column("made").to_pylist()) == str([as_times(expected)] * batch().num_rows)


def as_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_times(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(inner if inner == "k" else as_times(inner) for inner in value)
    return None if value is None else datetime.fromisoformat(value)


def samples() -> dict[str, list[str]]:
    """Values by the names of DuckDB's types, as SQL; the first that a function takes is used."""
    texts = ["'2024-03-01'", "'a'", "'year'", "'{\"a\": 1}'", "'$.a'", "'UTC'", "'%Y'", "'sum'"]
    times = {"DATE": "DATE '2024-03-01'", "TIME": "TIME '12:30:00'", "INTERVAL": "INTERVAL 1 DAY"}
    stamps = ["TIMESTAMP '2024-03-01 12:00:00'", "TIMESTAMPTZ '2024-03-01 12:00:00+00'"]
    numbers = {
        name: [f"3::{name}"] for name in ("BIGINT", "INTEGER", "DOUBLE", "FLOAT", "HUGEINT", "UBIGINT", "UTINYINT")
    }
    return {
        "VARCHAR": texts, "JSON": ["'{\"a\": 1}'::JSON"], "BLOB": ["'a'::BLOB"], "BOOLEAN": ["true"], "UUID": [
            "'0191a0c4-7d1c-7b00-8000-000000000000'::UUID"], "BIT": ["'101'::BIT"], "TIMESTAMP": stamps[:1],
        "TIMESTAMP WITH TIME ZONE": stamps[1:], **{name: [value] for name, value in times.items()}, **numbers,
    }  # fmt: skip


def any_value() -> list[str]:
    return ["3", "'a'", "[3, 4]", "{'a': 3}", "MAP {'a': 3}", "TIMESTAMP '2024-03-01 12:00:00'"]


def calls(types: Sequence[str], name: str) -> Iterator[str]:
    """Calls of a function with values of its parameters."""
    known = samples()
    values = [known.get(kind, any_value()) for kind in types]
    shown = name if name[0].isalpha() else f'"{name}"'
    for chosen in islice(product(*values), 30):
        yield f"SELECT {shown}({', '.join(chosen)})::VARCHAR"


@pytest.mark.thorough
def test_no_function_that_is_allowed_knows_the_clock_or_who_asks() -> None:
    """Each is called in two sessions, one of them a moment later and with other settings than the sessions of tasks."""
    here, there = connect(), duckdb.connect(":memory:", config={"threads": 2})
    there.execute("SET TimeZone = 'UTC'")
    there.execute("CREATE SCHEMA other")
    there.execute("USE other")
    facts = here.execute(
        "SELECT lower(function_name), parameter_types, stability FROM duckdb_functions() "
        "WHERE function_type = 'scalar' ORDER BY ALL"
    ).fetchall()
    assert {name for name, _, stability in facts if stability != "CONSISTENT" and is_allowed(name)} == {"error"}
    answers: dict[str, Any] = {}
    for name, types, _ in facts:
        for text in calls(types, name) if is_allowed(name) else ():
            try:
                answers[text] = here.execute(text).fetchall()
            except duckdb.Error:
                continue
            break
    time.sleep(0.01)
    assert {text: there.execute(text).fetchall() for text in answers} == answers
    assert len(answers) > 400


def test_a_text_that_stands_for_a_moment_in_other_databases_is_no_time() -> None:
    words = ["now", "today", "tomorrow", "yesterday", "current_timestamp", "allballs"]
    made = run("SELECT name::TIMESTAMP AS t FROM batch", batch(6, name=words))
    assert [error.index for error in made.errors] == [0, 1, 2, 3, 4, 5]
    assert values("TRY_CAST(name AS DATE)", batch(6, name=words)) == [None] * 6
    for constant in ("'now'::TIMESTAMP", "DATE 'today'", "(TIME 'now')::VARCHAR", "CAST('tomorrow' AS TIMESTAMPTZ)"):
        assert len(run(f"SELECT {constant} AS t FROM batch").errors) == 6


def test_a_column_that_is_named_like_the_clock_is_a_column() -> None:
    rows = batch(2).append_column("current_date", pa.array(["a", "b"]))
    query = Query("SELECT upper(current_date) AS made FROM batch")
    query.schema(pa.schema([*GIVEN, pa.field("current_date", pa.string())]))
    assert query.apply(rows).rows.column("made").to_pylist() == ["A", "B"]


def test_nan_is_compared_as_sql_does_it_and_not_as_arrow_does() -> None:
    rows = batch(3, price=[float("nan"), 1.0, None])
    assert run("SELECT id FROM batch WHERE price > 1e300", rows).kept.to_pylist() == [0]
    assert run("SELECT id FROM batch WHERE price = price", rows).kept.to_pylist() == [0, 1]


def test_a_row_goes_where_the_condition_is_false_or_null_and_a_tombstone_stays() -> None:
    rows = batch(4, price=[None, 1.0, 9.0, None], _is_deleted=[False, False, False, True])
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
