"""Converts Arrow values to JSON text, column by column, without loss: with the column's type, the value can be read
back.

Numbers are JSON numbers in the shortest form that reads back the same; ``NaN`` and the infinities, which JSON lacks,
are the texts "NaN", "Infinity" and "-Infinity". Decimals are text, because most readers parse a JSON number as double.
Times are RFC 3339 in UTC with six digits, dates ``YYYY-MM-DD``, bytes base64. A map is an object, a null is ``null``.
"""

import json
from binascii import b2a_base64
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import ConfigurationError

_HEAD = ("topic", "partition", "offset", "timestamp", "key")
_OF_DEAD_LETTERS = ("value", "headers", "error_class", "reason", "schemas")
_MUST_ESCAPE = '["\\\\\\x00-\\x1f]'
_CONTROL = "[\\x00-\\x1f]"
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_texts(values: pa.Array) -> pa.Array:
    """Return the JSON text of each value; a null becomes the text ``null``, so the result has no nulls."""
    data_type = values.type
    if pa.types.is_map(data_type):
        texts = _maps(values)
    elif pa.types.is_list(data_type):
        texts = _lists(values)
    elif pa.types.is_struct(data_type):
        children = dict(zip((field.name for field in data_type), values.flatten(), strict=True))
        texts = json_object({name: json_texts(child) for name, child in children.items()}, len(values))
    else:
        return pc.fill_null(_scalars(values), "null")
    return pc.if_else(pc.is_valid(values), texts, "null") if values.null_count else texts


def json_object(texts: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return a JSON object per row, made of the JSON texts of its members, in their order, without spaces."""
    if not texts:
        return pa.repeat("{}", rows)
    pieces: list[pa.Array | str] = []
    for number, (name, column) in enumerate(texts.items()):
        pieces += [f"{',' if number else '{'}{json.dumps(name, ensure_ascii=False)}:", column]
    return pc.binary_join_element_wise(*pieces, "}", "")


def refuse_unwritable(schema: pa.Schema) -> None:
    """Raise ``ConfigurationError`` for a column with values that this module cannot write."""
    for field in schema:
        if not _is_writable(field.type):
            raise ConfigurationError(
                f"JSON cannot hold column {field.name}: its type is {field.type}",
                next_step="give the sink format: parquet, or leave the column out",
            )


def _is_writable(data_type: pa.DataType) -> bool:
    if pa.types.is_map(data_type):
        return pa.types.is_string(data_type.key_type) and _is_writable(data_type.item_type)
    if pa.types.is_list(data_type):
        return _is_writable(data_type.value_type)
    if pa.types.is_struct(data_type):
        return all(_is_writable(field.type) for field in data_type)
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_boolean, pa.types.is_integer, pa.types.is_date32,
             pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal128)  # fmt: skip
    return any(test(data_type) for test in tests) or data_type == pa.timestamp("us", "UTC")


def _scalars(values: pa.Array) -> pa.Array:
    data_type = values.type
    if pa.types.is_string(data_type):
        return _texts(values)
    if pa.types.is_binary(data_type):
        return pa.array([_base64(value) for value in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(data_type):
        return _times(values)
    texts = values.cast(pa.string())
    if pa.types.is_floating(data_type):
        texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)  # many readers read -0 as the integer 0
        if pc.all(pc.is_finite(values)).as_py() is False:
            for name, text in _NOT_FINITE.items():
                texts = pc.if_else(pc.equal(texts, name), text, texts)
        return texts
    plain = pa.types.is_boolean(data_type) or pa.types.is_integer(data_type)
    return texts if plain else pc.binary_join_element_wise('"', texts, '"', "")


def _base64(value: bytes | None) -> str | None:
    return None if value is None else f'"{b2a_base64(value, newline=False).decode()}"'


def _times(values: pa.Array) -> pa.Array:
    """Return quoted times. Each day is cast only once, and the time of day per value; this takes a fifth of the 1.2 us
    that casting a timestamp takes."""
    days = values.cast(pa.date32()).dictionary_encode()
    dates = days.dictionary.cast(pa.string()).take(days.indices)
    return pc.binary_join_element_wise('"', dates, "T", values.cast(pa.time64("us")).cast(pa.string()), 'Z"', "")


def _texts(values: pa.Array) -> pa.Array:
    """Return quoted texts. Escapes are rare, so one search decides whether any value needs them."""
    if pc.any(pc.match_substring_regex(values, _MUST_ESCAPE)).as_py():
        control = pc.fill_null(pc.match_substring_regex(values, _CONTROL), False)
        escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
        odd = [json.dumps(text, ensure_ascii=False)[1:-1] for text in values.filter(control).to_pylist()]
        values = pc.replace_with_mask(escaped, control, pa.array(odd, pa.string()))
    return pc.binary_join_element_wise('"', values, '"', "")


def _lists(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("[", pc.fill_null(_joined(values, json_texts(values.flatten())), ""), "]", "")


def _maps(values: pa.Array) -> pa.Array:
    data_type = values.type
    pairs = values.cast(pa.list_(pa.struct([("key", data_type.key_type), ("value", data_type.item_type)])))
    names, items = pairs.flatten().flatten()
    members = pc.binary_join_element_wise(_texts(names), json_texts(items), ":")
    return pc.binary_join_element_wise("{", pc.fill_null(_joined(pairs, members), ""), "}", "")


def _joined(lists: pa.Array, members: pa.Array) -> pa.Array:
    """Return the members of each list, separated by commas; ``members`` are those of all lists that are not null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pc.binary_join(pa.ListArray.from_arrays(offsets.cast(pa.int32()), members), ",")


def json_lines(rows: pa.RecordBatch) -> pa.Array:
    """Return one JSON object per row, without line feed."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    texts = {name: json_texts(columns.pop(f"_{name}")) for name in _HEAD}
    columns.pop("_manifest_id", None)  # it is in the name of the file
    if "_reason" in columns:
        texts |= {name: json_texts(columns.pop(f"_{name}")) for name in _OF_DEAD_LETTERS}
    else:
        for name in ("row", "is_deleted"):
            beside = columns.pop(f"_{name}", None)
            texts |= {} if beside is None else {name: json_texts(beside)}
        texts["data"] = json_object({name: json_texts(column) for name, column in columns.items()}, rows.num_rows)
    return json_object(texts, rows.num_rows)
