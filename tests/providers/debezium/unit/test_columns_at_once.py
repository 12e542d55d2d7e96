"""Envelopes that Arrow reads at once, and the same read record by record: the result is the same."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.providers.debezium.unit.test_debezium import NOON_US, PLACEHOLDER, batch, beside
from tidemark.decoders.base import Decoded
from tidemark.decoders.registry import open_decoder
from tidemark.providers.debezium.columns_at_once import EnvelopeReader

SCHEMA = (
    "id BIGINT NOT NULL, name STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE, ok BOOLEAN, n INT, d DOUBLE, "
    "raw BINARY"
)
FIELDS = [
    {"field": "id", "type": "int64"}, {"field": "name", "type": "string"},
    {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"}, {"field": "ok", "type": "boolean"},
    {"field": "n", "type": "int32"}, {"field": "d", "type": "double"}, {"field": "raw", "type": "bytes"},
]  # fmt: skip


def encoded(number: int) -> str:
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return b64encode(number.to_bytes(length, "big", signed=True)).decode()


MOMENTS = st.one_of(st.integers(-(10**15), 3 * 10**15), st.sampled_from([0, -1, NOON_US, NOON_US // 1_000, 2**62]))
TEXTS = st.one_of(st.text(max_size=6), st.sampled_from([PLACEHOLDER, "", '"', "\\", "\u007f", '":{', "null"]))
PRICES = st.one_of(
    st.integers(-(10**10), 10**10).map(encoded), st.integers(-(2**80), 2**80).map(encoded),
    st.sampled_from(["1234", "12.34", "NaN", "Infinity", "AAAA", "AAFF", "AB==", "BNJ=", "", 12.34, 5, PLACEHOLDER,
                     {"scale": 3, "value": "MDQ="}]),
)  # fmt: skip
CONTENTS = st.one_of(
    st.binary(max_size=7).map(lambda content: b64encode(content).decode()),
    st.sampled_from(
        [b64encode(PLACEHOLDER.encode()).decode(), PLACEHOLDER, "AB", "AB=", "AB==", "A===", "=", "AA==AA==", 5]
    ),
)
ROWS = st.fixed_dictionaries(
    {
        "id": st.one_of(st.integers(-9, 9), st.sampled_from([2**63 - 1, 2**63, "1", None])),
        "name": st.none() | TEXTS, "price": st.none() | PRICES, "at": st.none() | MOMENTS,
        "day": st.none() | st.integers(-800_000, 3_000_000), "ok": st.sampled_from([None, True, False, "x"]),
        "n": st.none() | st.integers(-(2**31) - 1, 2**31), "d": st.none() | st.floats() | st.integers(-5, 5),
        "raw": st.none() | CONTENTS,
    },
    optional={"more": st.none() | TEXTS | st.integers(), "inner": st.just({"a": [1]})},
)  # fmt: skip
GOOD = st.fixed_dictionaries(
    {
        "id": st.integers(-9, 9), "name": st.none() | st.text(max_size=6),
        "price": st.none() | st.integers(-(10**10) + 1, 10**10 - 1).map(encoded), "at": st.just(NOON_US),
        "day": st.none() | st.integers(-700_000, 2_900_000), "ok": st.none() | st.booleans(),
        "n": st.none() | st.integers(-9, 9), "d": st.none() | st.floats(-5, 5),
        "raw": st.none() | st.binary(max_size=7).map(lambda content: b64encode(content).decode()),
    }
)  # fmt: skip
SOURCE = st.fixed_dictionaries(
    {"table": st.sampled_from(["orders", "debezium_signal", None]), "lsn": st.integers(0, 2**40) | st.none(),
     "snapshot": st.sampled_from(["true", "false"]), "ts_ns": st.just(1_795_819_359_672_946_000)}
)  # fmt: skip
TRANSACTION = st.none() | st.just({"id": "571", "total_order": 1, "data_collection_order": 2})


def envelopes(row: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"before": st.none() | row, "after": st.none() | row, "source": SOURCE, "transaction": TRANSACTION,
         "op": st.sampled_from([*"ccuuurd", "m", "t", "z", None]), "ts_ms": st.integers(0, 2**40)},
    )  # fmt: skip


LISTS = st.lists(envelopes(GOOD) | envelopes(ROWS) | envelopes(GOOD), min_size=1, max_size=12)
FIRST = {"before": None, "after": {"id": 1, "name": "a", "price": "BNI=", "at": NOON_US, "day": 1, "ok": True, "n": 1,
                                   "d": 0.5, "raw": "AQ=="},
         "source": {"table": "orders", "lsn": 5, "snapshot": "true", "ts_ns": 1}, "transaction": None, "op": "c",
         "ts_ms": 1}  # fmt: skip


def config(*, with_schema: bool, **envelope: Any) -> dict[str, Any]:
    times = {} if with_schema else {"times": {"at": "us"}}
    columns = {"lsn": "source.lsn", "tx": "transaction.id", "told": "ts_ms"}
    return {"format": "json", "schema": SCHEMA, "tombstones": ["id"],
            "envelope": {"kind": "debezium", "columns": columns, **times, **envelope}}  # fmt: skip


def content(made: Decoded) -> Any:
    unknown = made.unknown and list(zip(made.unknown.paths.to_pylist(), made.unknown.records.to_pylist(), strict=True))
    return repr((made.rows.to_pylist(), made.good.to_pylist(), made.errors, made.filtered.to_pylist(),
                 made.deleted.to_pylist(), unknown))  # fmt: skip


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of the reader took."""
    taken: list[int] = []
    fitting = EnvelopeReader.fitting

    def counted(self: EnvelopeReader, values: Any) -> Any:
        fits = fitting(self, values)
        taken.append(0 if fits is None else fits.true_count)
        return fits

    monkeypatch.setattr(EnvelopeReader, "fitting", counted)
    return taken


@pytest.mark.thorough
@pytest.mark.parametrize("decimals", [None, "base64", "text"])
@pytest.mark.parametrize("with_schema", [False, True])
@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(records=LISTS, spaces=st.booleans(), keep_null=st.booleans())
def test_at_once_and_one_by_one_are_the_same(
    monkeypatch: pytest.MonkeyPatch, with_schema: bool, decimals: str | None, records: list[Any], spaces: bool,
    keep_null: bool,
) -> None:  # fmt: skip
    more = {**({"decimals": decimals} if decimals else {}), **({"unavailable": "keep_null"} if keep_null else {})}
    order = config(with_schema=with_schema, **more)
    separators = (", ", ": ") if spaces else (",", ":")
    made = [beside(FIELDS, record) if with_schema else record for record in (FIRST, *records)]
    values = [
        json.dumps(record, separators=separators, ensure_ascii=spaces).encode("utf-8", "replace") for record in made
    ]
    given_batch = batch([(b'{"id": 1}', value) for value in values])
    at_once = open_decoder(order).decode(given_batch)
    with monkeypatch.context() as patched:
        patched.setattr(EnvelopeReader, "of", classmethod(lambda *_: None))
        one_by_one = open_decoder(order).decode(given_batch)
    assert content(at_once) == content(one_by_one)


@pytest.mark.parametrize("with_schema", [False, True])
def test_records_as_connectors_write_them_are_read_at_once(read_at_once: list[int], with_schema: bool) -> None:
    row = {**FIRST["after"], "more": "x"}
    other = {**FIRST, "after": row, "op": "u", "before": row}
    deletion = {**FIRST, "after": None, "op": "d", "before": FIRST["after"]}
    records = [FIRST, deletion, other, {**FIRST, "op": "r"}, other] * 40
    values = [beside(FIELDS, record) if with_schema else record for record in records]
    data = [(b'{"id": 1}', json.dumps(value, separators=(",", ":")).encode()) for value in values]
    made = open_decoder(config(with_schema=with_schema)).decode(batch(data))
    assert read_at_once[-1] == len(records)
    assert made.errors == ()
    assert made.unknown is not None
    assert made.unknown.records.to_pylist() == [at for at, record in enumerate(records) if record is other]
    assert made.rows.column("lsn").to_pylist() == [None if record is deletion else 5 for record in records]


def test_bytes_that_are_no_text_and_spaces_in_a_beginning_leave_all_to_the_slow_way() -> None:
    good = json.dumps(FIRST, separators=(",", ":")).encode()
    made = open_decoder(config(with_schema=False)).decode(
        batch(
            [(b'{"id": 1}', value) for value in (good, good.replace(b'"a"', b'"\xff"'), b"", b"{}", good + b" ", good)]
        )
    )
    assert made.good.to_pylist() == [0, 4, 5]
