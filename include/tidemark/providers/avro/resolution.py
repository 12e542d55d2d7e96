"""Resolves a writer's schema to a reader's, by Avro's rules, as far as it is known without a record.

fastavro resolves the values. It ignores logical types, so that milliseconds would be read as microseconds without a
word: a change of the unit or of a decimal's scale is refused here.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidemark.providers.avro.types import kind_of

PROMOTED: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_UNITS: Final = ("timestamp", "local-timestamp", "time")


def mismatch(writer: Any, reader: Any, path: str = "") -> str | None:
    """Why no record of this writer fits the reader; None when records may fit."""
    if isinstance(writer, list):
        reasons = [mismatch(branch, reader, path) for branch in writer]
        return None if None in reasons else (reasons[0] if reasons else f"{_at(path)} is an empty union")
    if isinstance(reader, list):
        reasons = [mismatch(writer, branch, path) for branch in reader]
        same = [reason for branch, reason in zip(reader, reasons, strict=True) if kind_of(branch) == kind_of(writer)]
        if None in same or (None in reasons and not same):
            return None
        return same[0] if same else f"{_at(path)} is {_named(writer)}, which is not in the reader's union"
    kind, wanted = kind_of(writer), kind_of(reader)
    if kind != wanted:
        if wanted in PROMOTED.get(kind, ()):
            return None
        return f"{_at(path)} is {_named(writer)}, and {_named(reader)} for the reader"
    match kind:
        case "record":
            return _fields(writer, reader, path)
        case "array":
            return mismatch(writer["items"], reader["items"], f"{path}[]")
        case "map":
            return mismatch(writer["values"], reader["values"], f"{path}{{}}")
        case "fixed" if writer["size"] != reader["size"]:
            return f"{_at(path)} has {writer['size']} bytes, and {reader['size']} for the reader"
    return _units(writer, reader, path)


def _fields(writer: Mapping[str, Any], reader: Mapping[str, Any], path: str) -> str | None:
    written = {field["name"]: field for field in writer["fields"]}
    for field in reader["fields"]:
        names = [field["name"], *field.get("aliases", ())]
        source = next((written[name] for name in names if name in written), None)
        inner = f"{path}.{field['name']}" if path else field["name"]
        if source is None:
            if "default" not in field:
                return f"{_at(inner)} is absent, and the reader has no default for it"
            continue
        reason = mismatch(source["type"], field["type"], inner)
        if reason is not None:
            return reason
    return None


def _units(writer: Any, reader: Any, path: str) -> str | None:
    """A number that means something else; a type without a logical one may become any."""
    before, after = _logical(writer), _logical(reader)
    if before == after or before is None or after is None:
        return None
    if before[0].startswith(_UNITS) or after[0].startswith(_UNITS) or "decimal" in (before[0], after[0]):
        return f"{_at(path)} is {_named(writer)}, and {_named(reader)} for the reader"
    return None


def _logical(schema: Any) -> tuple[str, int] | None:
    if not isinstance(schema, Mapping) or "logicalType" not in schema:
        return None
    name = str(schema["logicalType"])
    return name, schema.get("scale", 0) if name == "decimal" else 0


def _named(schema: Any) -> str:
    logical = _logical(schema)
    if logical is None:
        return kind_of(schema)
    return f"decimal with scale {logical[1]}" if logical[0] == "decimal" else logical[0]


def _at(path: str) -> str:
    return f"field {path}" if path else "the record"
