"""Checks whether a target can store the names of columns and nested fields. Sinks declare their limits, and one
function checks them. Also compares with the columns that a table has: a name that differs only by case is the same.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.text import folded

Path = tuple[str, ...]
_SHOWN = 80  # characters of a name in a message


@dataclass(frozen=True)
class StorableNames:
    """The limits of a sink beyond those of every sink (``problem_with_names``).

    ``unfit`` is a regular expression that no name may match, also no nested field's; ``unfit_why`` follows the name in
    a message. ``longest``: the most bytes of a column's name. ``reserved``: columns that the target itself has, each
    with a reason for the message; ``reserved_exactly``: the same, but case matters. ``joined_paths``: the format
    identifies a field by its path with dots, so no name may look like one. ``stored``: the columns that are stored, if
    not all are.
    """

    unfit: str = ""
    unfit_why: str = ""
    longest: int | None = None
    reserved: Mapping[str, str] | None = None
    reserved_exactly: Mapping[str, str] | None = None
    joined_paths: bool = False
    stored: Sequence[str] | None = None


def problem_with_names(names: StorableNames, columns: pa.Schema) -> str | None:
    """Return why a target cannot store columns with these names; None if it can. The text goes on after the name of a
    key: ``may not have a column ..``.

    No sink accepts a name that is empty or contains NUL, a column that begins with _, or two names at the same level
    that most engines treat as one.
    """
    fields = [field for field in columns if names.stored is None or field.name in names.stored]
    for within, beside in _levels(fields, ()):
        spelled: dict[str, pa.Field] = {}
        for field in beside:
            path = (*within, field.name)
            problem = _problem_with_name(names, path)
            twin = spelled.setdefault(folded(field.name), field)
            if problem is None and twin is not field:
                problem = clash(field, [twin])
            if problem is None and names.joined_paths and "." in field.name:
                problem = clash(field, beside)
            if problem is not None:
                return f"may not have a column {_shown(path)}: {problem}"
    return None


def clash(new: pa.Field, beside: Iterable[pa.Field]) -> str | None:
    """Return, as a sentence, why an engine could confuse a field with another one at the same level; None if it could
    not."""
    for field in beside:
        if field is not new and folded(field.name) == folded(new.name):
            return f"it differs from {_shown((field.name,))} by case only, and most engines see one name"
        dotted, other = (new, field) if len(new.name) > len(field.name) else (field, new)
        if folded(dotted.name).startswith(f"{folded(other.name)}.") and pa.types.is_nested(other.type):
            return f"{_shown((dotted.name,))} could be the path of a field inside {_shown((other.name,))}"
    return None


def refuse_clash(new: pa.Field, beside: Iterable[pa.Field], within: Path, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` if an engine could confuse a new field of the rows with the fields that the table has at
    the same level."""
    problem = clash(new, beside)
    if problem is not None:
        raise SinkRefused(
            f"the table cannot have a column {_shown((*within, new.name))} as the rows do: {problem}",
            next_step="write the name as the table has it in the schema or in a transform, or rename the column of the "
            "table" + THEN_RETRY,
            **context,
        )


def _problem_with_name(names: StorableNames, path: Path) -> str | None:
    name = path[-1]
    if not name:
        return "its name is empty"
    if "\0" in name:
        return "no name has NUL"
    if names.unfit and re.search(names.unfit, name):
        return names.unfit_why
    if len(path) > 1:
        return None
    if name.startswith("_"):
        return "such names are Tidemark's own"
    if names.longest is not None and len(name.encode()) > names.longest:
        return f"a name has at most {names.longest} bytes"
    for other, why in (names.reserved or {}).items():
        if folded(other) == folded(name):
            return why
    return (names.reserved_exactly or {}).get(name)


def _levels(fields: Sequence[pa.Field], within: Path) -> Iterator[tuple[Path, Sequence[pa.Field]]]:
    """Yield the fields of each level with the path to them: first all columns, then those of each nested struct."""
    yield within, fields
    for field in fields:
        for path, struct in _structs(field.type, (*within, field.name)):
            yield from _levels(list(struct), path)


def _structs(kind: pa.DataType, path: Path) -> Iterator[tuple[Path, pa.DataType]]:
    """Yield the outermost structs of a type, with their paths."""
    if pa.types.is_struct(kind):
        yield path, kind
    elif pa.types.is_map(kind):
        yield from _structs(kind.key_type, (*path, "key"))
        yield from _structs(kind.item_type, (*path, "value"))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _structs(kind.value_type, (*path, "element"))


def _shown(path: Path) -> str:
    text = ".".join(path)
    return text if re.fullmatch(r"[\w.]{1,80}", text) else repr(text[:_SHOWN])
