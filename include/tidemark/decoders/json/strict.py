"""``json``: one JSON object per record, held to its schema word by word.

Spark's ``from_json`` and ``pyarrow.json`` accept content after the object, a second object, duplicate names and absent
fields without a word. Here each is an error of its record. The scanner is Python's own in C; types are checked a
column at a time, and only a column with a wrong value is searched for it. Records of which a pattern has shown that
they can have none of these faults are read by Arrow instead (``plain_json.py``), with the same result.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import REASON_LIMIT, Decoded
from tidemark.decoders.json.json_schema import record_of
from tidemark.decoders.json.nested import Record, quoted
from tidemark.decoders.json.plain import PlainReader
from tidemark.decoders.json.shapes import Misfit, json_name

DEPTH_LIMIT = 128  # nesting of a record; Python's scanner gives up near 1,000, at a depth that differs by caller
RARE = 100  # one record in so many may be read the slow way before a pattern is sought that takes it in
LOOKED_AT = 3
_WHITESPACE = " \t\n\r"
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class Undecodable(Exception):
    """Why one record is not what the schema describes."""


class JsonDecoder:
    """``schema`` of the config is a JSON Schema as a mapping or a Spark DDL text (``decoders/json_schema.py``)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._take(record_of(config.get("schema")))

    @classmethod
    def of(cls, record: Record) -> Self:
        """A decoder of just these fields."""
        made = cls.__new__(cls)
        made._take(record)
        return made

    def _take(self, record: Record) -> None:
        self._record = record
        self._schema = pa.schema([field.arrow for field in self._record.fields])
        self._plain = PlainReader.of(record)
        exact = any(pa.types.is_decimal(kind) for kind in _types_within(self._record.arrow))
        self._scanner = json.JSONDecoder(
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=Decimal if exact else None,
        )

    @property
    def record(self) -> Record:
        """What a record must look like."""
        return self._record

    @property
    def schema(self) -> pa.Schema:
        """One column per property, in the order of the schema."""
        return self._schema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the ``value`` of each record; a record without a value (a tombstone) is an error."""
        values = batch.column("value")
        fits = self._fitting(values)
        if self._plain is None or fits is None:
            return self._each(values)
        others = pc.indices_nonzero(pc.invert(fits)).cast(pa.int64())
        plain = pc.indices_nonzero(fits).cast(pa.int64())
        try:
            columns = self._plain.columns(values.filter(fits) if len(others) else values)
        except (Misfit, pa.ArrowInvalid):  # a 30th of February
            return self._each(values)
        if not len(others):
            return Decoded(pa.RecordBatch.from_arrays(columns, schema=self._schema), plain, ())
        return self._joined(columns, plain, self._each(values.take(others)), others)

    def _fitting(self, values: pa.Array) -> pa.Array | None:
        """Which values Arrow may read; looks at some of the others when they are many, so that the next ones fit."""
        if self._plain is None:
            return None
        fits = self._plain.fitting(values)
        others = values if fits is None else values.filter(pc.invert(fits))
        if len(others) * RARE <= len(values):
            return fits
        for value in others[:LOOKED_AT].to_pylist():
            try:
                record = self._parsed(value)
            except Undecodable:
                continue
            if self._record.why(record, "") is None:
                self._plain.learn(record)
        return self._plain.fitting(values)

    def _joined(self, columns: list[pa.Array], plain: pa.Array, rest: Decoded, others: pa.Array) -> Decoded:
        """Both ways' rows in the order of the records; ``others`` says where the rest's records stand."""
        good = pa.concat_arrays([plain, others.take(rest.good)])
        order = pc.sort_indices(good)
        both = [pa.concat_arrays(pair).take(order) for pair in zip(columns, rest.rows.columns, strict=True)]
        errors = tuple((others[at].as_py(), reason) for at, reason in rest.errors)
        return Decoded(pa.RecordBatch.from_arrays(both, schema=self._schema), good.take(order), errors)

    def _each(self, values: pa.Array) -> Decoded:
        """Decode record by record, with the reason for each that cannot be."""
        records: list[dict[str, Any]] = []
        good: list[int] = []
        errors: list[tuple[int, str]] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                records.append(self._parsed(value))
                good.append(index)
            except Undecodable as error:
                errors.append((index, str(error)))
        try:
            columns = self._record.columns(records)
        except Misfit:
            wrong = {at: self._record.why(records[at], "") or "" for at in self._record.misfits(records)}
            errors += [(good[at], reason) for at, reason in wrong.items()]
            errors.sort()
            columns = self._record.columns([record for at, record in enumerate(records) if at not in wrong])
            good = [index for at, index in enumerate(good) if at not in wrong]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return Decoded(rows, pa.array(good, pa.int64()), tuple((at, reason[:REASON_LIMIT]) for at, reason in errors))

    def _parsed(self, value: bytes | None) -> dict[str, Any]:
        if not value:
            raise Undecodable("no value (a tombstone)" if value is None else "the value is empty")
        if value.count(b"[") + value.count(b"{") > DEPTH_LIMIT and _depth(value) > DEPTH_LIMIT:
            raise Undecodable(f"not read: nested deeper than {DEPTH_LIMIT}")
        try:
            text = value.decode()
            found, end = self._scanner.raw_decode(text, len(text) - len(text.lstrip(_WHITESPACE)))
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise Undecodable(_reason(error)) from error
        if end != len(text) and text[end:].strip(_WHITESPACE):
            raise Undecodable(f"not JSON: more content after the first value, at character {end}")
        if type(found) is not dict:
            raise Undecodable(f"expected an object, found {json_name(found)}")
        return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Undecodable(f"not JSON: the name {quoted(twice)} comes twice")
    return found


def _no_constant(name: str) -> None:
    raise Undecodable(f"not JSON: {name}")


def _reason(error: Exception) -> str:
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case json.JSONDecodeError() if error.doc.startswith("\ufeff"):
            return "not JSON: begins with a byte order mark"
        case json.JSONDecodeError():
            return f"not JSON: {error.msg.rstrip(': ').removesuffix(' at')} at character {error.pos}"
        case RecursionError():
            return "not read: nested too deeply"
        case _:
            return "not read: a number with too many digits"


def _depth(value: bytes) -> int:
    """How deeply brackets are nested outside strings; what is not UTF-8 or not JSON gets some number."""
    deepest = depth = 0
    for character in _STRING.sub("", value.decode(errors="replace")):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _types_within(kind: pa.DataType) -> list[pa.DataType]:
    """A type and all that it is made of."""
    parts = [kind.field(at).type for at in range(kind.num_fields)]
    return [kind, *(inner for part in parts for inner in _types_within(part))]
