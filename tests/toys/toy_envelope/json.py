"""Reads such envelopes in JSON; a key has ``pk.`` before the name of each field."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.decoders.json_shapes.nested import Field, Struct
from tidemark.decoders.json_shapes.shapes import Text

PARTS = ("type", "data")


class ToyJson:
    reader = None

    def __init__(self, row: Struct) -> None:
        self.key = row
        self.row = pa.schema([field.arrow for field in row.fields])
        data = Field("data", row, required=False, nullable=True)
        self.struct = Struct((Field("type", Text(), required=False, nullable=True), data))

    def opened(self, record: dict[str, Any]) -> dict[str, Any]:
        return {name: record[name] for name in PARTS if name in record}

    def opened_key(self, key: dict[str, Any], single: str | None) -> dict[str, Any]:
        del single
        return {name.removeprefix("pk."): value for name, value in key.items() if name.startswith("pk.")}


def open_json(config: Mapping[str, Any], row: Struct, key: Sequence[str]) -> ToyJson:
    del config, key
    return ToyJson(row)


def row_inside(config: Mapping[str, Any], record: object) -> object:
    del config
    return record.get("data") if isinstance(record, dict) else None


def doubts_of(config: Mapping[str, Any], columns: pa.Schema, record: object) -> Sequence[Any]:
    del config, columns, record
    return ()


def types_inside(config: Mapping[str, Any], record: object) -> Mapping[str, str]:
    del config, record
    return {}
