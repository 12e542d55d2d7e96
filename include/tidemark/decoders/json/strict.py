"""``json``: one JSON object per record, checked strictly against its schema.

Spark's ``from_json`` and ``pyarrow.json`` accept content after the object, a second object, duplicate names and absent
fields without an error. Here each of these is an error of its record. The parser is Python's own, in C. Types are
checked a column at a time; only a column that fails is searched for its wrong values. Records that match a pattern
(``plain.py``) cannot have these errors: Arrow reads them instead, with the same result.
"""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import Decoded
from tidemark.decoders.batch_parts import joined
from tidemark.decoders.json.on_unknown import OnUnknown
from tidemark.decoders.json.plain import PlainReader
from tidemark.decoders.json.schema_beside import SchemaBeside
from tidemark.decoders.json.unknown import bad_records, unknown_fields
from tidemark.decoders.json_shapes.nested import Struct, shapes_within
from tidemark.decoders.json_shapes.patterns import ColumnReader
from tidemark.decoders.json_shapes.shapes import Exact, Whole, json_name
from tidemark.decoders.list_limit import ListLimit, count_of_lists
from tidemark.decoders.names import quoted
from tidemark.decoders.one_by_one import Misfit, Undecodable, decode_each
from tidemark.model.positions import positions

DEPTH_LIMIT = 128  # nesting of a record; Python's scanner fails near 1,000, at a depth that depends on its caller
LONGEST_INTEGER = 400  # digits; the largest float has 309
RARE = 100  # if more than one record in RARE does not match, the patterns learn from some of these
LEARNED_FROM = 3  # records per batch from which the patterns learn
_WHITESPACE = " \t\n\r"
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class JsonDecoder:
    """Decodes records with the fields of ``struct``: one column for each, in their order.

    ``opened`` takes a parsed record and returns the part that ``struct`` describes; it may raise ``Undecodable``. With
    ``opened``, ``reader`` reads the columns of most records.
    """

    null_text = b"null"

    def __init__(
        self,
        struct: Struct,
        max_list_bytes: int | None = None,
        on_unknown: OnUnknown = OnUnknown.COUNT,
        opened: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        reader: ColumnReader | None = None,
    ) -> None:
        self.struct = struct
        self._on_unknown = on_unknown
        self._opened = opened
        self.schema = pa.schema([field.arrow for field in struct.fields])
        self._lists = ListLimit(self.schema, max_list_bytes, self._list_bytes)
        self._count_of_lists = count_of_lists(struct.arrow) or (lambda _: 0)
        self._plain: ColumnReader | None = PlainReader.of(struct) if opened is None else reader
        exact = any(isinstance(shape, Exact | Whole) for shape in shapes_within(struct))
        scanner = partial(
            json.JSONDecoder,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=Decimal if exact else None,
        )
        self._scanner, self._of_long_integers = scanner(), scanner(parse_int=_integer)
        self._beside = SchemaBeside(self._scanner)

    def only(self, names: Collection[str]) -> "JsonDecoder":
        """Return a decoder that reads only these fields."""
        wanted = tuple(field for field in self.struct.fields if field.name in names)
        return JsonDecoder(Struct(wanted), opened=self._opened)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the ``value`` of each record; a record without a value (a tombstone) is an error."""
        return self._lists.read(batch.column("value"), self._read)

    def _list_bytes(self, value: bytes) -> int:
        try:
            return self._count_of_lists(self._parsed(value))
        except Undecodable:
            return 0

    def _read(self, values: pa.Array) -> Decoded:
        decoded = self._read_fields(values)
        if decoded.unknown is None or self._on_unknown is OnUnknown.COUNT:
            return decoded
        bad = bad_records(decoded.unknown, self._on_unknown)
        stays = pc.invert(pc.is_in(decoded.good, value_set=decoded.unknown.records))
        errors = tuple(sorted((*decoded.errors, *bad)))
        return Decoded(decoded.rows.filter(stays), decoded.good.filter(stays), errors)

    def _read_fields(self, values: pa.Array) -> Decoded:
        """Decode the fields that the schema has, and find the names of other fields."""
        fits = self._fitting(values)
        if self._plain is None or fits is None:
            return self._one_by_one(values)
        others = pc.indices_nonzero(pc.invert(fits)).cast(pa.int64())
        fitting = values.filter(fits) if len(others) else values
        try:
            columns = self._plain.columns(fitting)
        except (Misfit, pa.ArrowInvalid):  # a 30th of February
            return self._one_by_one(values)
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        read = Decoded(rows, positions(rows.num_rows), (), unknown=self._plain.unknown(fitting))
        if not len(others):
            return read
        plain = pc.indices_nonzero(fits).cast(pa.int64())
        return joined(self.schema, [read.at(plain), self._one_by_one(values.take(others)).at(others)])

    def _fitting(self, values: pa.Array) -> pa.Array | None:
        """Return which values Arrow may read. If many do not match, the patterns first learn from some of them."""
        if self._plain is None:
            return None
        fits = self._plain.fitting(values)
        others = values if fits is None else values.filter(pc.invert(fits))
        if len(others) * RARE <= len(values):
            return fits
        for value in others[:LEARNED_FROM].to_pylist():
            try:
                record = self._parsed(value)
            except Undecodable:
                continue
            if self.struct.problem_with(record, "") is None:
                self._plain.learn(record, value)
        return self._plain.fitting(values)

    def _one_by_one(self, values: pa.Array) -> Decoded:
        """Decode record by record; each that cannot be decoded has its own reason."""
        parsed, columns = self._parsed, self.struct.columns
        decoded, records = decode_each(values.to_pylist(), self.schema, parsed, columns, self._problems)
        unknown = unknown_fields(self.struct, records)
        return replace(decoded, unknown=unknown and unknown.at(decoded.good))

    def _problems(self, records: list[dict[str, Any]]) -> dict[int, str]:
        return {at: self.struct.problem_with(records[at], "") or "" for at in self.struct.misfits(records)}

    def _parsed(self, value: bytes | None) -> dict[str, Any]:
        if not value:
            raise Undecodable("no value (a tombstone)" if value is None else "the value is empty")
        try:
            text = value.decode()
            record, end = self._scanned(text, len(text) - len(text.lstrip(_WHITESPACE)))
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise Undecodable(_reason(error)) from error
        if end != len(text) and text[end:].strip(_WHITESPACE):
            raise Undecodable(f"not JSON: more content after the first value, at character {end}")
        if type(record) is not dict:
            raise Undecodable(f"expected an object, found {json_name(record)}")
        return record if self._opened is None else self._opened(record)

    def _scanned(self, text: str, start: int) -> tuple[Any, int]:
        """Return (value, end). A known schema beside the record is not parsed again; only records with ``opened`` have
        one."""
        known = None if self._opened is None else self._beside.read(text, start)
        if known is not None:
            schema, begin = known
            payload, end = self._scanned_at(text, begin, inside=1)
            if text.startswith("}", end):
                return {"schema": schema, "payload": payload}, end + 1
        record, end = self._scanned_at(text, start, inside=0)
        if self._opened is not None:
            self._beside.learn(text, start, record)
        return record, end

    def _scanned_at(self, text: str, start: int, *, inside: int) -> tuple[Any, int]:
        """Return (value, end) of the value at ``start``, which lies inside ``inside`` objects."""
        limit = DEPTH_LIMIT - inside
        if text.count("[", start) + text.count("{", start) > limit and _depth(text[start:]) > limit:
            raise Undecodable(f"not read: nested deeper than {DEPTH_LIMIT}")
        try:
            return self._scanner.raw_decode(text, start)
        except json.JSONDecodeError:
            raise
        except ValueError:  # Python refuses an int of more than 4,300 digits; the field may be one that nobody reads
            return self._of_long_integers.raw_decode(text, start)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Undecodable(f"not JSON: the name {quoted(name)} comes twice")
            seen.add(name)
    return members


def _integer(text: str) -> int:
    """Return the number. Of more than ``LONGEST_INTEGER`` digits, keep the first: the number still exceeds every
    type."""
    return int(text if len(text) <= LONGEST_INTEGER else text[:LONGEST_INTEGER])


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


def _depth(text: str) -> int:
    """Return how deeply brackets outside strings are nested; any number for text that is not JSON."""
    deepest = depth = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest
