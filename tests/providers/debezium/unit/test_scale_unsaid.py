"""Decimals in base64 without a schema: neither the records nor the file say their scale."""

import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest

from tests.providers.debezium.unit.test_debezium import batch
from tidemark.decoders.registry import open_decoder
from tidemark.processing.doubts import doubts

SCHEMA = "id BIGINT NOT NULL, price DECIMAL(10,2), fee DECIMAL(10,2)"


def decode(**envelope: Any) -> dict[str, Any]:
    return {"format": "json", "schema": SCHEMA, "tombstones": ["id"], "unknown_fields": "count",
            "envelope": {"kind": "debezium", **envelope}}  # fmt: skip


def change(price: Any) -> dict[str, Any]:
    return {"before": None, "after": {"id": 1, "price": price, "fee": None}, "source": {"table": "t"}, "op": "c"}


def told(settings: dict[str, Any], *records: Any) -> list[str]:
    return [
        str(doubt) for doubt in doubts(settings, batch([(b'{"id":1}', json.dumps(each).encode()) for each in records]))
    ]


def in_base64(number: str, scale: int) -> str:
    """What a connector writes for a number in a column with this scale."""
    whole = int(Decimal(number).scaleb(scale))
    return b64encode(
        whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)
    ).decode()


def test_two_numbers_of_two_scales_are_one_record() -> None:
    """Therefore no rule over a record reads the one and refuses the other."""
    assert change(in_base64("7.25", 4)) == change(in_base64("725.00", 2))
    made = open_decoder(decode()).decode(batch([(b'{"id":1}', json.dumps(change(in_base64("725.00", 2))).encode())]))
    assert made.rows.column("price").to_pylist() == [Decimal("725.00")]


def test_a_column_in_base64_is_doubtful_once() -> None:
    records = [change(in_base64(number, 2)) for number in ("725.00", "-0.01", "3.25")]
    [doubt] = told(decode(), *records)
    assert doubt.startswith("column price: its numbers are base64 without a schema")


@pytest.mark.parametrize("settings", [{"decimals": "base64"}, {"decimals": "text"}])
def test_the_file_says_what_it_knows(settings: dict[str, Any]) -> None:
    assert told(decode(**settings), change(in_base64("725.00", 2))) == []


@pytest.mark.parametrize(
    "record",
    [
        change(None),
        change("7.25"),
        change({"scale": 4, "value": in_base64("7.25", 4)}),
        {"schema": {"type": "struct"}, "payload": change(in_base64("7.25", 4))},
        {"op": "d", "before": {"id": 1}, "after": None, "source": {}},
        {"ts_ms": 1},
        [],
    ],
)
def test_what_says_its_scale_is_not_doubtful(record: Any) -> None:
    assert told(decode(), record) == []
