"""Maps as JSON of PostgreSQL: each key is a text, and a key that has none is refused before anything is read."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemark.providers.postgres.columns import problem_with_maps
from tidemark.providers.postgres.writer import _as_text


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (pa.string(), 'a"\\', 'a"\\'), (pa.int64(), -1, "-1"), (pa.bool_(), True, "true"), (pa.float64(), 1.5, "1.5"),
        (pa.float64(), float("nan"), "NaN"), (pa.float64(), float("-inf"), "-Infinity"),
        (pa.binary(), b"a\xff", "\\x61ff"),
        (pa.date32(), date(2024, 1, 1), "2024-01-01"), (pa.decimal128(5, 2), Decimal("1.50"), "1.50"),
    ],
)  # fmt: skip
def test_a_key_of_any_plain_type_is_a_text(kind: pa.DataType, key: Any, text: str) -> None:
    for wrapped in (lambda value: value, lambda value: [value], lambda value: {"x": value}):
        mapped = wrapped(pa.map_(kind, pa.int8()))
        made = pa.list_(mapped[0]) if isinstance(mapped, list) else mapped
        made = pa.struct(list(made.items())) if isinstance(made, dict) else made
        [written] = _as_text(pa.array([wrapped([(key, 1)])], made)).to_pylist()
        assert json.loads(written) == wrapped({text: 1})


def test_a_map_whose_keys_have_parts_is_refused() -> None:
    plain = pa.map_(pa.string(), pa.struct([("x", pa.int8())]))
    assert problem_with_maps(pa.schema([("m", plain), ("l", pa.list_(plain))])) is None
    for part in (pa.list_(pa.int8()), pa.struct([("x", pa.int8())]), plain):
        nested = pa.map_(part, pa.int8())
        for kind in (nested, pa.list_(nested), pa.struct([("x", nested)]), pa.map_(pa.string(), nested)):
            assert problem_with_maps(pa.schema([("n", pa.int8()), ("m", kind)])) == (
                "may not have a column m: it holds a map whose keys have parts, and JSON has text for keys"
            )
