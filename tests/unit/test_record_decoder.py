"""Keys, headers and tombstones beside values, for every format alike."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tidemark.decoders.base import Decoded, ErrorClass
from tidemark.decoders.registry import open_decoder
from tidemark.model.record_schema import HEADERS

VALUE = {"format": "json", "schema": "id BIGINT NOT NULL, name STRING NOT NULL"}
KEY = {"format": "json", "schema": "id BIGINT NOT NULL, shop STRING", "part": "key"}


def decoded(config: dict[str, Any], *records: tuple[bytes | None, bytes | None]) -> Decoded:
    headers = [[{"key": "h", "value": b"%d" % at}] if at % 2 else None for at in range(len(records))]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    decoder = open_decoder(config)
    result = decoder.decode(batch)
    assert result.rows.schema == decoder.schema
    assert result.rows.validate(full=True) is None
    assert result.rows.num_rows == len(result.good)
    indices = [*result.good.to_pylist(), *(bad.index for bad in result.errors)]
    assert sorted(indices) == list(range(len(records)))
    return result


def key(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, **more}).encode()


def value(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}"}).encode()


def test_fields_of_the_key_stand_beside_those_of_the_value() -> None:
    result = decoded({**VALUE, "key": KEY, "headers": True}, (key(7, shop="a"), value(1)), (key(8), value(2)))
    assert result.rows.to_pylist() == [
        {"key_id": 7, "key_shop": "a", "id": 1, "name": "n1", "headers": None},
        {"key_id": 8, "key_shop": None, "id": 2, "name": "n2", "headers": [{"key": "h", "value": b"1"}]},
    ]
    assert result.deleted is None


def test_a_key_that_is_one_value_is_the_column_key() -> None:
    result = decoded({**VALUE, "key": {"format": "raw", "part": "key"}}, (b"k", value(1)))
    assert result.rows.select(["key"]).to_pydict() == {"key": [b"k"]}


def test_a_bad_key_is_an_error_of_class_key_and_the_others_are_unharmed() -> None:
    records = [
        (key(1), value(1)),
        (b"no", value(2)),
        (None, value(3)),
        (key(4), b"no"),
        (b"no", b"no"),
        (key(6), value(6)),
    ]
    result = decoded({**VALUE, "key": KEY, "headers": True}, *records)
    assert result.good.to_pylist() == [0, 5]
    assert result.rows.column("key_id").to_pylist() == result.rows.column("id").to_pylist() == [1, 6]
    classes = [(bad.index, bad.error) for bad in result.errors]
    assert classes == [(1, ErrorClass.KEY), (2, ErrorClass.KEY), (3, ErrorClass.VALUE), (4, ErrorClass.KEY)]


def test_a_tombstone_has_the_fields_of_its_key() -> None:
    config = {**VALUE, "key": KEY, "headers": True, "tombstones": ["id"]}
    records = [(key(1), value(1)), (key(2, shop="b"), None), (b"no", None), (key(4), b"no"), (key(5), value(5))]
    result = decoded(config, *records)
    rows = [(row["key_id"], row["key_shop"], row["id"], row["name"]) for row in result.rows.to_pylist()]
    assert rows == [(1, None, 1, "n1"), (2, "b", 2, None), (5, None, 5, "n5")]
    assert result.deleted is not None
    assert result.deleted.to_pylist() == [False, True, False]
    assert [(bad.index, bad.error) for bad in result.errors] == [(2, ErrorClass.KEY), (3, ErrorClass.VALUE)]


@pytest.mark.parametrize("records", [[], [(key(1), None)], [(key(1), value(1))]])
def test_a_tombstone_may_have_only_the_columns_of_its_key(records: list[tuple[bytes | None, bytes | None]]) -> None:
    result = decoded({**VALUE, "key": KEY, "tombstones": ["key_id"]}, *records)
    assert result.deleted is not None
    assert result.deleted.to_pylist() == [value is None for _, value in records]
    assert result.rows.column("key_id").to_pylist() == [1] * len(records)


def test_tombstones_with_keys_as_json_keep_their_mark_beside_headers() -> None:
    result = decoded({**VALUE, "headers": True, "tombstones": ["id"]}, (b"3", None), (None, value(4)))
    assert result.deleted is not None
    assert result.deleted.to_pylist() == [True, False]
    assert result.rows.column("headers").to_pylist() == [None, [{"key": "h", "value": b"1"}]]
