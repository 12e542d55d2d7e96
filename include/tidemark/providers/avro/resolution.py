"""Reads records of one writer as rows of one reader, by Avro's rules of schema resolution.

Only fields of the reader's schema are resolved; the rest of a record is skipped. Two rules are stricter than Avro's: a
change of the unit of a time, or of the scale of a decimal, is refused, because the numbers would change their meaning.
One is less strict, as in Java: the names of records, enums and fixed types within a record only choose between the
branches of a union.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tidemark.decoders.one_by_one import Undecodable
from tidemark.providers.avro.binary import (
    READS,
    Read,
    read_bytes,
    read_entries,
    read_fixed,
    read_index,
    read_items,
    read_string,
    skip,
)
from tidemark.providers.avro.schema import aliases_of, kind_of, takes_no_bytes, without_null
from tidemark.providers.avro.types import Convert, as_text, logical_of
from tidemark.text import is_text

PROMOTED: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
Resolve = Callable[[Any, Any, str], Read]
_UNITS: Final = ("timestamp", "local-timestamp", "time", "date")
_BITS: Final[Mapping[str, int]] = {"int": 31, "long": 63}


class NotResolved(Exception):
    """No record of this writer fits the reader; the message names the field."""


def resolved(writer: Any, reader: Any, *, any_name: bool = False) -> Read:
    """Return a function that reads a value of the writer as one of the reader; raises ``NotResolved``.

    A record must have the name of the reader's record (namespaces are not compared), or one of its aliases; with
    ``any_name`` it may have any name. The function raises ``Undecodable`` for bytes that are not a value, or for a
    value that the reader cannot have.
    """
    resolve = _resolve if any_name else _resolve_named
    return _of_union(writer, reader, "", resolve) if isinstance(writer, list) else resolve(writer, reader, "")


def _resolve_named(writer: Any, reader: Any, path: str) -> Read:
    if kind_of(writer) == kind_of(reader) == "record":
        known = (reader["name"], *aliases_of(reader))
        if _short(writer["name"]) not in map(_short, known):
            raise NotResolved(f"it is a record {writer['name'][:60]}, and the reader needs {reader['name'][:60]}")
    return _resolve(writer, reader, path)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _resolve(writer: Any, reader: Any, path: str) -> Read:
    if isinstance(writer, list):
        return _of_union(writer, reader, path, _resolve)
    if isinstance(reader, list):
        return _as_branch(writer, reader, path)
    kind, wanted = kind_of(writer), kind_of(reader)
    _refuse_other_unit(writer, reader, path)
    if kind != wanted:
        if wanted not in PROMOTED.get(kind, ()):
            names = (kind, wanted) if logical_of(writer) == logical_of(reader) else (_named(writer), _named(reader))
            raise NotResolved(f"{_at(path)} is {names[0]}, and the reader needs {names[1]}")
        return _promoted(kind, wanted)
    match kind:
        case "record":
            return _of_record(writer, reader, path)
        case "array":
            if takes_no_bytes(writer["items"]):
                raise NotResolved(f"{_at(path)} is an array whose items take no bytes: a record could hold billions")
            return partial(read_items, _resolve(writer["items"], reader["items"], f"{path}[]"))
        case "map":
            return partial(read_entries, _resolve(writer["values"], reader["values"], f"{path}{{}}"))
        case "enum":
            return partial(_read_symbol, _symbols(writer, reader))
        case "fixed" if writer["size"] != reader["size"]:
            raise NotResolved(f"{_at(path)} has {writer['size']} bytes, and the reader needs {reader['size']}")
    return partial(read_fixed, writer["size"]) if kind == "fixed" else READS[kind]


def _of_union(writer: Sequence[Any], reader: Any, path: str, resolve: Resolve) -> Read:
    """Return a function that reads any branch of the writer's union.

    Some branches may not fit the reader: a record that uses one of these is an error. Raises if no branch fits.
    """
    branches: list[Read] = []
    reasons: list[str] = []
    for branch in writer:
        try:
            branches.append(resolve(branch, reader, path))
        except NotResolved as problem:
            reasons.append(str(problem))
            branches.append(partial(_refuse, str(problem)))
    if len(reasons) == len(writer):
        raise NotResolved(reasons[0] if reasons else f"{_at(path)} is an empty union")
    nulls = [2 * at for at, branch in enumerate(writer) if kind_of(branch) == "null"]
    if len(writer) == 2 and len(nulls) == 1 and not reasons:
        return partial(_read_or_null, nulls[0], 2 - nulls[0], branches[1 - nulls[0] // 2], branches)
    return partial(_read_branch, branches)


def _as_branch(writer: Any, reader: Sequence[Any], path: str) -> Read:
    """Return a function that reads a type as a branch of the reader's union.

    It takes a branch of the same kind, preferably of the same name, or else a wider type. The column of a union of
    several types is JSON, which has no logical types: so the function makes the text of a date, time or decimal at
    once.
    """
    kind = kind_of(writer)
    same = [branch for branch in reader if kind_of(branch) == kind]
    if kind in ("record", "enum", "fixed"):
        name = writer["name"]
        same.sort(key=lambda branch: (branch["name"] != name, _short(branch["name"]) != _short(name)))
    reasons: list[str] = []
    for branch in same or [branch for branch in reader if kind_of(branch) in PROMOTED.get(kind, ())]:
        try:
            read = _resolve(writer, branch, path)
        except NotResolved as problem:
            reasons.append(str(problem))
            continue
        convert = _text_of_branch(reader, branch)
        return partial(_read_as_text, read, convert, path) if convert else read
    raise NotResolved(reasons[0] if reasons else f"{_at(path)} is {_named(writer)}, which is not in the reader's union")


def _text_of_branch(union: Sequence[Any], branch: Any) -> Convert | None:
    """Return ``as_text`` of a branch; None for a union of null and one type, whose column has the type of its
    values."""
    return as_text(branch) if isinstance(without_null(union)[0], list) else None


def _read_as_text(read: Read, convert: Convert, path: str, data: bytes, at: int) -> tuple[Any, int]:
    value, at = read(data, at)
    try:
        return convert(value), at
    except ValueError as problem:
        raise Undecodable(f"{_at(path)}: {problem}") from None


def _of_record(writer: Mapping[str, Any], reader: Mapping[str, Any], path: str) -> Read:
    written = {field["name"]: field for field in writer["fields"]}
    targets: dict[str, list[tuple[str, Read]]] = {}  # for each field that is read: the reader's fields made of it
    defaults: dict[str, Any] = {}
    for field in reader["fields"]:
        source = next((name for name in (field["name"], *aliases_of(field)) if name in written), None)
        inner = f"{path}.{field['name']}" if path else field["name"]
        if source is not None:
            target = (field["name"], _resolve(written[source]["type"], field["type"], inner))
            targets.setdefault(source, []).append(target)
        elif "default" in field:
            defaults[field["name"]] = default_of(field["type"], field["default"], inner)
        else:
            raise NotResolved(f"{_at(inner)} is absent, and the reader has no default for it")
    steps: list[tuple[str | None, Any]] = []
    for field in writer["fields"]:
        if field["name"] in targets:
            *others, last = targets[field["name"]]
            steps += [*((name, partial(_peek, read)) for name, read in others), last]
        else:
            steps.append((None, skip(field["type"])))
    if len(targets) == len(writer["fields"]) and not defaults:
        return partial(_read_whole, [(name, step) for name, step in steps if name is not None])
    return partial(_read_fields, steps, defaults)


def _peek(read: Read, data: bytes, at: int) -> tuple[Any, int]:
    """Read a value without moving on, because another field of the reader needs it too."""
    return read(data, at)[0], at


def default_of(schema: Any, default: Any, path: str) -> Any:
    """Return the value of a field's default, including the defaults of the fields inside; raises ``NotResolved``."""
    if isinstance(schema, list):
        for branch in schema:
            try:
                value = default_of(branch, default, path)
                convert = _text_of_branch(schema, branch)
                return convert(value) if convert and value is not None else value
            except (NotResolved, ValueError):
                continue
        raise _wrong_default(path, default)
    match kind_of(schema), default:
        case "record", Mapping():
            return {field["name"]: _part_of_default(field, default, path) for field in schema["fields"]}
        case "array", list():
            return [default_of(schema["items"], item, f"{path}[]") for item in default]
        case "map", Mapping():
            return {key: default_of(schema["values"], item, f"{path}{{}}") for key, item in default.items()}
        case kind, _ if _is_scalar(schema, kind, default):
            return _SCALAR_DEFAULTS.get(kind, _as_given)(default)
    raise _wrong_default(path, default)


def _part_of_default(field: Mapping[str, Any], default: Mapping[str, Any], path: str) -> Any:
    inner, name = f"{path}.{field['name']}", field["name"]
    if name not in default and "default" not in field:
        raise NotResolved(f"{_at(inner)} is absent in a default, and has no default of its own")
    return default_of(field["type"], default.get(name, field.get("default")), inner)


def _is_scalar(schema: Any, kind: str, default: Any) -> bool:
    """Return whether a default is a value of a type without parts, as JSON writes it."""
    match kind:
        case "null":
            return default is None
        case "boolean":
            return type(default) is bool
        case "int" | "long":
            return type(default) is int and -(1 << _BITS[kind]) <= default < 1 << _BITS[kind]
        case "float" | "double":
            return type(default) in (int, float)
        case "string":
            return isinstance(default, str) and is_text(default)
        case "enum":
            return default in schema["symbols"]
        case "bytes" | "fixed":
            is_latin = isinstance(default, str) and all(character <= "\xff" for character in default)
            return is_latin and (kind == "bytes" or len(default) == schema["size"])
        case _:
            return False


def _as_given(default: Any) -> Any:
    return default


def _latin(default: str) -> bytes:
    return default.encode("latin-1")


_SCALAR_DEFAULTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "bytes": _latin, "fixed": _latin, "float": float, "double": float,
}  # fmt: skip


def _wrong_default(path: str, default: Any) -> NotResolved:
    return NotResolved(f"{_at(path)} is absent, and the reader's default {str(default)[:40]!r} is not of its type")


def _read_whole(steps: Sequence[tuple[str, Read]], data: bytes, at: int) -> tuple[dict[str, Any], int]:
    record = {}
    for name, read in steps:
        record[name], at = read(data, at)
    return record, at


def _read_fields(
    steps: Sequence[tuple[str | None, Any]], defaults: Mapping[str, Any], data: bytes, at: int
) -> tuple[dict[str, Any], int]:
    """Read the fields that the reader has. Steps without a name skip a field."""
    record = {**defaults}
    for name, step in steps:
        if name is None:
            at = step(data, at)
        else:
            record[name], at = step(data, at)
    return record, at


def _read_or_null(null: int, other: int, read: Read, branches: Sequence[Read], data: bytes, at: int) -> tuple[Any, int]:
    """Choose between two branches by their byte. This is the usual case, for which a loop over branches takes twice as
    long."""
    byte = data[at]
    if byte == other:
        return read(data, at + 1)
    return (None, at + 1) if byte == null else _read_branch(branches, data, at)


def _read_branch(branches: Sequence[Read], data: bytes, at: int) -> tuple[Any, int]:
    index, at = read_index(len(branches), data, at)
    return branches[index](data, at)


def _refuse(reason: str, _: bytes, __: int) -> tuple[Any, int]:
    raise Undecodable(f"does not resolve: {reason}")


def _symbols(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return for each symbol of the writer: (its name, the reader's symbol or None)."""
    known = set(reader["symbols"])
    default = reader.get("default") if reader.get("default") in known else None
    return [(name, name if name in known else default) for name in writer["symbols"]]


def _read_symbol(symbols: Sequence[tuple[str, str | None]], data: bytes, at: int) -> tuple[str, int]:
    index, at = read_index(len(symbols), data, at)
    name, symbol = symbols[index]
    if symbol is None:
        raise Undecodable(f"does not resolve: the reader's enum has no symbol {name[:60]}, and no default")
    return symbol, at


def _promoted(kind: str, wanted: str) -> Read:
    if kind == "string":
        return read_bytes
    if kind == "bytes":
        return read_string
    if wanted == "long" or kind == "float":
        return READS[kind]
    return partial(_read_converted, READS[kind], float)


def _read_converted(read: Read, convert: Callable[[Any], Any], data: bytes, at: int) -> tuple[Any, int]:
    value, at = read(data, at)
    return convert(value), at


def _refuse_other_unit(writer: Any, reader: Any, path: str) -> None:
    """Raise ``NotResolved`` if a number would change its meaning. A type without a logical type may become any
    other."""
    before, after = logical_of(writer), logical_of(reader)
    if before == after or before is None or after is None:
        return
    if before[0].startswith(_UNITS) or after[0].startswith(_UNITS) or "decimal" in (before[0], after[0]):
        raise NotResolved(f"{_at(path)} is {_named(writer)}, and the reader needs {_named(reader)}")


def _named(schema: Any) -> str:
    logical = logical_of(schema)
    if logical is None:
        return kind_of(schema)
    return f"decimal with scale {logical[1]}" if logical[0] == "decimal" else logical[0]


def _at(path: str) -> str:
    return f"field {path}" if path else "the record"
