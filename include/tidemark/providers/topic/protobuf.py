"""Protobuf values with Confluent's framing: a zero byte, the schema's id in four bytes, which message, the row.

The schema is pinned in the order, so the same rows always make the same bytes. The message is the first of its file.
Repeated fields and maps are refused, because Protobuf cannot tell an empty list from a null one.
"""

import re
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from tidemark.errors import ConfigurationError
from tidemark.providers.protobuf.schemas.descriptors import pool_of
from tidemark.providers.protobuf.schemas.registered import descriptor_set_of
from tidemark.providers.protobuf.schemas.shapes import MessageShape, message_shape
from tidemark.providers.registry.registered_schema import RegisteredSchema

KIND = "PROTOBUF"
_FIRST_MESSAGE = b"\0"
_TIMESTAMP = "google.protobuf.Timestamp"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    pa.bool_(): "bool", pa.int8(): "int32", pa.int16(): "int32", pa.int32(): "int32", pa.int64(): "int64",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.timestamp("us", "UTC"): _TIMESTAMP,
}  # fmt: skip
_SMALL = (pa.int8(), pa.int16())  # Protobuf has no smaller number than int32


class ProtobufValues:
    """Writes rows with one schema. The caller has compared the columns with it (``problem_with``)."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._framing = b"\0" + schema.number.to_bytes(4, "big") + _FIRST_MESSAGE
        self._message = GetMessageClass(_descriptor(schema))

    def of(self, rows: pa.RecordBatch) -> pa.Array:
        names = rows.schema.names
        values = (_values(column) for column in rows.columns)
        written = []
        for row in zip(*values, strict=True):
            known = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            written.append(self._framing + self._message(**known).SerializeToString(deterministic=True))
        return pa.array(written, pa.binary())


def values_of(schema: RegisteredSchema) -> ProtobufValues:
    return ProtobufValues(schema)


def derived(columns: pa.Schema, name: str) -> str:
    """Return the text of a .proto file with these columns as its message.

    Raises ``ConfigurationError`` for a column that cannot be one of its fields.
    """
    body = _message(name, list(columns), "", "")
    imports = 'import "google/protobuf/timestamp.proto";\n' if _TIMESTAMP in body else ""
    return f'syntax = "proto3";\n{imports}{body}'


def problem_with(schema: RegisteredSchema, columns: pa.Schema) -> str | None:
    """Return why rows with these columns cannot be written with a schema, as a sentence; None if they can.

    The first message of its file must have a field for each column and no other. Order and numbers may differ.
    """
    if schema.kind != KIND:
        return f"it is {schema.kind}, not {KIND}"
    try:
        shape = message_shape(_descriptor(schema))
    except ConfigurationError as problem:
        return problem.what
    return _problem_within(shape, pa.struct(list(columns)), "")


def _problem_within(shape: MessageShape, columns: pa.DataType, within: str) -> str | None:
    fields = {field.name: field for field in shape.fields}
    for column in columns:
        field = fields.pop(column.name, None)
        if field is None:
            return f"it has no field for column {within}{column.name}"
        if pa.types.is_struct(column.type) and isinstance(field.shape, MessageShape):
            if problem := _problem_within(field.shape, column.type, f"{within}{column.name}."):
                return problem
        elif field.arrow.type != (pa.int32() if column.type in _SMALL else column.type):
            return f"its field {within}{column.name} is {field.arrow.type}, and the column is {column.type}"
        if column.nullable and not field.presence:
            return f"its field {within}{column.name} cannot be absent, and the column may be null"
    for name, field in fields.items():
        return f"its field {within}{name} is {field.arrow.type}, and there is no such column"
    return None


def _descriptor(schema: RegisteredSchema) -> Descriptor:
    """Return the descriptor of the first message of the schema's own file, which comes after its imports."""
    files = FileDescriptorSet.FromString(descriptor_set_of(schema)).file
    own = files[-1]
    if not own.message_type:
        raise ConfigurationError("it has no message", next_step="register one with a message")
    package = f"{own.package}." if own.package else ""
    return pool_of(files).FindMessageTypeByName(f"{package}{own.message_type[0].name}")


def _message(name: str, fields: list[pa.Field], within: str, indent: str) -> str:
    inner = f"{indent}  "
    lines = [f"{indent}message {name} {{"]
    messages = {f"{field.name}_message" for field in fields if pa.types.is_struct(field.type)}
    in_json: dict[str, str] = {}
    for number, field in enumerate(fields, 1):
        path = f"{within}{field.name}"
        if field.name in messages:
            raise _refused(path, "that is the name of the message for the column before _message")
        twin = in_json.setdefault(_json_name(field.name), field.name)
        if twin != field.name:
            raise _refused(path, f"in Protobuf's JSON it has the same name as {twin}")
        if not _NAME.fullmatch(field.name):
            raise _refused(path, "its name has other characters than letters, digits and _ (or begins with a digit)")
        kind = _PLAIN.get(field.type)
        if pa.types.is_struct(field.type):
            kind = f"{field.name}_message"
            lines.append(_message(kind, list(field.type), f"{path}.", inner).rstrip())
        if kind is None:
            raise _refused(path, f"it is {field.type}")
        has_presence = pa.types.is_struct(field.type) or kind == _TIMESTAMP
        label = "optional " if field.nullable and not has_presence else ""
        lines.append(f"{inner}{label}{kind} {field.name} = {number};")
    return "\n".join([*lines, f"{indent}}}", ""])


def _json_name(name: str) -> str:
    """Return the name that protoc gives to a field in JSON. No two fields of a message may have the same."""
    return re.sub(r"_+(.?)", lambda match: match[1].upper(), name)


def _refused(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Protobuf cannot hold column {path}: {why}",
        next_step="give the sink another format, or leave the column out",
    )


def _values(column: pa.Array) -> list[Any]:
    """Return the values in the form that a Python message accepts: a time as seconds and nanoseconds, a struct as its
    fields that are not null."""
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        parts = zip(*(_values(part) for part in column.flatten()), strict=True)
        present = column.is_valid().to_pylist()
        rows = [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in parts]
        return [row if is_present else None for row, is_present in zip(rows, present, strict=True)]
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    return [
        None if micros is None else {"seconds": micros // 1_000_000, "nanos": micros % 1_000_000 * 1_000}
        for micros in column.cast(pa.int64()).to_pylist()
    ]
