"""The keys of ``decode`` in a pipeline file that every format shares.

A format says what becomes of a value, or of a key, alone: ``order``, ``field_types`` and ``never_null``. All formats
share what becomes of a whole record, with its key and its headers: ``record_order``, ``columns`` and the others.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, SerializeAsAny, StrictBool, ValidationInfo, WithJsonSchema, model_validator

from tidemark.config.base import Section, Size, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.envelopes.envelope_settings import EnvelopeEntry
from tidemark.decoders.names import HEADERS_COLUMN, WHOLE, key_column
from tidemark.decoders.pins import Pins
from tidemark.decoders.record_key import RECORD_KEY, ColumnsOrRecordKey
from tidemark.decoders.registry import open_decoder, open_values
from tidemark.errors import ConfigurationError
from tidemark.kinds import DECODERS
from tidemark.text import folded, with_nearest

MAX_LIST_BYTES = 64 * 2**20
_OF_A_RECORD = ("key", "headers", "tombstones", "envelope")


def _key(value: object, info: ValidationInfo) -> object:
    if value is None or isinstance(value, Section):
        return value
    kind = value.get("format", "") if isinstance(value, Mapping) else ""
    if not isinstance(value, Mapping) or kind not in DECODERS:
        raise wrong(f"must be a mapping with format, one of {', '.join(DECODERS)}, and the keys of that format")
    for name in _OF_A_RECORD:
        if name in value:
            raise wrong_at(name, "belongs beside key, not below it: it is about the whole record")
    return DECODERS.module(kind, "settings").Settings.model_validate(value, context=info.context)


NULLABLE = "it can be null; write NOT NULL in the schema, or list it under required"  # messages say it of a column


class RowSettings(Protocol):
    """The rows that event time and sinks get, as far as a pipeline file describes them."""

    @property
    def format(self) -> str: ...

    def field_types(self) -> dict[str, str]:
        """Return the Arrow type, as text, of each top-level field that may be a key or an event time."""
        ...

    def never_null(self) -> set[str]:
        """Return the top-level fields that have a value in every row, also in a row made from a tombstone."""
        ...

    def tombstone_fields(self) -> tuple[str, ...]:
        """Return the fields that a tombstone has; empty if a record without a value is not a tombstone."""
        ...

    def arrow_schema(self) -> pa.Schema:
        """Return the data columns, as the writer of a sink gets them."""
        ...

    def fans_out(self) -> bool:
        """Return whether a record may become several rows, which the column ``_row`` numbers."""
        ...


class DecodeSettings(Section):
    """The settings by which a record becomes a row. The field ``format`` of each kind holds its name in the
    registry."""

    problem_with_headers: ClassVar[str | None] = None
    problem_with_tombstones: ClassVar[str | None] = None
    keys_are_json: ClassVar[bool] = False  # true if the format itself reads the keys of tombstones
    may_have_envelope: ClassVar[bool] = False

    format: str
    key: Annotated[
        SerializeAsAny[Section] | None,
        BeforeValidator(_key),
        WithJsonSchema({"type": "object", "required": ["format"], "properties": {"format": {"enum": [*DECODERS]}}}),
    ] = Field(
        default=None,
        description="How the key becomes columns, such as `{format: avro, schema: key.avsc}`: a field is `key_NAME`, "
        "a single value `key`. A record whose key is missing or cannot be decoded is a dead letter.",
        examples=[{"format": "avro"}],
    )
    headers: StrictBool = Field(
        default=False,
        description="Whether rows get a column `headers`, a list of names and bytes (raw rows always).",
    )
    tombstones: ColumnsOrRecordKey = Field(
        default=(),
        description="The fields in the key of a record without a value, or `record_key`: all fields of `decode.key`. "
        "Such a record becomes a row with these fields, `_is_deleted` true, and null in all others; "
        "without this setting a dead letter. With `decode.key` they are fields of the key, by the name of "
        "the value's field that they fill, or as `key_NAME`. Without it (`json` only), the key is a JSON "
        "object with these fields, or, for a single one, its value. In `json` the text `null` is no "
        "value, and so is a value whose field `__deleted` is true where the schema has that field.",
        examples=[["product_id", "location_id"]],
    )

    envelope: EnvelopeEntry = Field(
        default=None,
        description="The [envelope](providers/debezium.md#envelopes-of-changed-rows) of records that tell a change of "
        "a row, in `json`, `avro` and `protobuf`. It needs `tombstones`.",
        examples=["debezium", {"debezium": {"columns": {"lsn": "source.lsn"}}}],
    )

    @model_validator(mode="before")
    @classmethod
    def _libraries(cls, value: object) -> object:
        kind = value.get("format", "") if isinstance(value, Mapping) else ""
        if kind in DECODERS and (problem := DECODERS.problem_with(kind)):
            raise wrong_at("format", problem)
        return value

    @model_validator(mode="after")
    def _enveloped(self) -> Self:
        if self.envelope is None:
            return self
        if not self.may_have_envelope:
            raise wrong_at("envelope", "needs format json, avro or protobuf")
        if not self.tombstones:
            raise wrong_at("tombstones", "is missing: with an envelope it names the fields that the key of a row has")
        return self

    @model_validator(mode="after")
    def _of_a_record(self) -> Self:
        if self.headers and self.problem_with_headers:
            raise wrong_at("headers", self.problem_with_headers)
        if self.tombstones and self.problem_with_tombstones:
            raise wrong_at("tombstones", self.problem_with_tombstones)
        if self.tombstones == RECORD_KEY and (missing := self.problem_with_record_key()):
            raise wrong_at("tombstones", missing)
        if self.tombstones and self.key is None and not self.keys_are_json:
            raise wrong_at("tombstones", "needs key: the format of the keys, such as key: {format: avro}")
        if problem := self.problem_with_columns():
            place = "headers" if self._has_two_headers() else "tombstones" if self.tombstones else "key"
            raise wrong_at(place, problem)
        return self

    def order(self) -> dict[str, Any]:
        """Return what the executors need to decode a value or a key. It refers to no file of this machine."""
        return {"format": self.format}

    @abstractmethod
    def _fields(self) -> dict[str, tuple[str, bool]]:
        """Return, for each top-level field that may be a key or an event time: (Arrow type as text, whether it may be
        null)."""

    def problem_with_topic(self, topic: str) -> str | None:
        """Return the reason why the records of a topic cannot be decoded, as a sentence about it. Here None: one format
        serves all topics."""
        del topic
        return None

    def is_known(self) -> bool:
        """Return whether the fields are known. Those of a schema registry are known once an attempt has pinned them."""
        return True

    def finds_unknown_fields(self) -> bool:
        """Return whether the format of values or keys finds fields that the schema does not have."""
        return self.of_key is not None and self.of_key.finds_unknown_fields()

    def connections(self) -> set[str]:
        """Return the ids of the Airflow connections that these settings name."""
        return self.of_key.connections() if self.of_key else set()

    def uses_registry(self) -> bool:
        """Return whether the schemas of values or keys are in a registry."""
        return self.of_key is not None and self.of_key.uses_registry()

    def pinned_part(self, pins: Pins, part: str) -> Self:
        """Return the same settings with the schemas of a registry pinned, for the ``value`` or the ``key``."""
        del pins, part
        return self

    def order_of_envelope(self) -> dict[str, Any]:
        """Return what the executors need of the envelope, as a part of ``order``."""
        return {} if self.envelope is None else {"envelope": self.envelope.order()}

    def fields_inside(self) -> dict[str, tuple[str, bool]]:
        """Return, for each column of the row in an envelope: (Arrow type as text, whether it may be null)."""
        try:
            schema = open_values({name: value for name, value in self.order().items() if name != "tombstones"}).schema
        except ConfigurationError as problem:
            raise wrong_at("envelope", f"does not fit: {problem.what}; {problem.next_step}") from None
        return {field.name: (str(field.type), field.nullable) for field in schema}

    def decides_output(self) -> dict[str, Any]:
        """Return the settings that decide the rows, for the fingerprint. Keys with their default value are left out."""
        key = {"key": self.of_key.decides_output()} if self.of_key else {}
        return {**self.model_dump(mode="json", exclude_defaults=True), **self.order_of_envelope(), **key}

    def pinned_output(self) -> dict[str, Any]:
        """Return the pinned schemas, which decide the rows too."""
        return {"key": self.of_key.pinned_output()} if self.of_key and self.of_key.pinned_output() else {}

    @property
    def of_key(self) -> "DecodeSettings | None":
        return self.key if isinstance(self.key, DecodeSettings) else None

    def pinned(self, pins: Pins) -> Self:
        """Return the same settings with all schemas of a registry pinned.

        Raises ``ConfigurationError``, or the error of a registry that does not answer.
        """
        pinned = self.pinned_part(pins, "value")
        return pinned.model_copy(update={"key": self.of_key.pinned_part(pins, "key")}) if self.of_key else pinned

    def record_order(self) -> dict[str, Any]:
        """Return what the executors need to decode whole records."""
        order = self.order()
        if self.headers:
            order["headers"] = True
        if self.of_key is not None:
            order["key"] = {**self.of_key.order(), "part": "key"}
            if self.tombstones:
                order["tombstones"] = list(self.deleted_by())
        return order

    def deleted_by(self) -> tuple[str, ...]:
        """Return ``tombstones`` as columns; empty as long as ``record_key`` names columns that are not known yet."""
        return self.tombstones if self.tombstones != RECORD_KEY else self.record_key() or ()

    def record_key(self) -> tuple[str, ...] | None:
        """Return the columns with the fields of the record's key; None as long as the schemas of key and value are not
        known.

        If the value has a field of the same name and type that is never null, its column is taken.
        """
        if self.of_key is None or not self.of_key.is_known() or not self.is_known():
            return None
        values = {name: field for name, field in self._fields().items() if name != WHOLE}
        keys = self.of_key.field_types().items()
        return tuple(name if values.get(name) == (kind, False) else key_column(name) for name, kind in keys)

    def problem_with_record_key(self) -> str | None:
        """Return the reason why ``record_key`` names no columns, as a sentence; None if a schema names them."""
        if self.of_key is not None:
            return None
        return (
            "is record_key, and no schema says what is in the keys: write decode.key, such as key: {format: avro, "
            "registry: ..} or key: {format: json, schema: ..}; or list the columns in place of record_key, where they "
            "differ below each_topic"
        )

    def columns(self) -> dict[str, str] | None:
        """Return the Arrow type, as text, of each column that may be a key or an event time; None if they are not known
        yet."""
        if not self.is_known() or (self.of_key is not None and not self.of_key.is_known()):
            return None
        keys = self.of_key.field_types() if self.of_key else {}
        return {**{key_column(name): kind for name, kind in keys.items()}, **self._value_types()}

    def _value_types(self) -> dict[str, str]:
        return {name: kind for name, (kind, _) in self._fields().items()}

    def field_types(self) -> dict[str, str]:
        return self.columns() or {}

    def never_null(self) -> set[str]:
        keys = {key_column(name) for name in self.of_key.never_null()} if self.of_key else set()
        values = {name for name, (_, nullable) in self._fields().items() if not nullable}
        return keys | (values & {*self.deleted_by()} if self.tombstones else values)

    def arrow_schema(self) -> pa.Schema:
        return open_decoder(self.record_order()).schema

    def fans_out(self) -> bool:
        return False

    def tombstone_fields(self) -> tuple[str, ...]:
        """Return the columns that a tombstone fills from its key; empty if a record without a value is not a
        tombstone."""
        named = self.deleted_by()
        if not named or self.of_key is None:
            return named
        keys = [key_column(name) for name in self.of_key.field_types()] if self.of_key.is_known() else []
        return (*named, *(name for name in keys if name not in named))

    def rows(self) -> RowSettings | None:
        """Return the rows that whole records become; None if their columns are not known yet."""
        return None if self.columns() is None else self

    def problem_with_columns(self) -> str | None:
        """Return why value, key and tombstones do not fit each other, as far as their fields are known; else None."""
        values = self._value_types() if self.is_known() else None
        if self._has_two_headers():
            return _second_column(HEADERS_COLUMN, HEADERS_COLUMN)
        if self.of_key is None:
            return self._problem_with_tombstones(values) if values else None
        return self._problem_with_key(values, self.of_key.field_types()) if self.of_key.is_known() else None

    def _problem_with_key(self, values: Mapping[str, str] | None, fields: Mapping[str, str]) -> str | None:
        """Return why the fields of the key do not fit the value or the tombstones; ``values``: its fields, if they are
        known."""
        keys = {key_column(name): name for name in fields}
        names = {folded(name): name for name in values or {}}
        if (twin := next((name for name in sorted(keys) if folded(name) in names), None)) is not None:
            return _second_column(twin, names[folded(twin)])
        for field in self.deleted_by():
            if field not in keys and field not in fields:
                return f"names {field}, which the key does not have; it has {', '.join([*fields, *keys])}"
            if field not in keys and values is not None and field not in values:
                return f"names {field}, which the value does not have; write {key_column(field)}"
            if field not in keys and values is not None and values[field] != fields[field]:
                return f"names {field}, which is {fields[field]} in the key and {values[field]} in the value"
        return None

    def _has_two_headers(self) -> bool:
        return self.headers and self.is_known() and HEADERS_COLUMN in map(folded, self._fields())

    def _problem_with_tombstones(self, values: Mapping[str, str]) -> str | None:
        further = self.envelope.further_columns() if self.envelope else ()
        of_row = [name for name in values if name not in further]
        for field in self.tombstones:
            if field not in of_row:
                return with_nearest(f"names {field}, which is not in the schema", field, of_row)
        return None


class ListSettings(DecodeSettings):
    """A format that leaves unset parts out of the elements of a list. So lists may be far larger as columns."""

    max_list_bytes: Size = Field(
        default=MAX_LIST_BYTES,
        description="For `json`, `json_schema`, `protobuf`: bytes that a record's lists and maps may take as columns, "
        "without texts; with more it is a dead letter.",
        json_schema_extra={"default": "64MiB"},
    )


def _second_column(name: str, field: str) -> str:
    differs = "" if name == field else f", {field}: most engines do not tell upper from lower case"
    return f"gives a second column {name}: the value has a field of that name{differs}"
