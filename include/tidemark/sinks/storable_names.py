"""The names that a target can store, of columns and of the fields inside them: sinks declare them, and one function
judges. The same holds for the names that a table has already: one that differs by case alone is the same column.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.text import folded

Path = tuple[str, ...]
_SHOWN = 80  # characters of a name


@dataclass(frozen=True)
class StorableNames:
    """Limits beside those that every sink has (``problem_with_names``).

    ``unfit`` is a regular expression of what no name may have, also of a field inside, and ``unfit_why`` follows the
    name in a message. ``longest``: bytes of the name of a column. ``reserved``: names of columns that the target has
    itself, each with the words for it; ``reserved_exactly``: the same where another case is another name.
    ``joined_paths``: the format knows a field by its path with dots, so no name may look like one.
    ``stored``: the columns that are stored, where it is not all of them.
    """

    unfit: str = ""
    unfit_why: str = ""
    longest: int | None = None
    reserved: Mapping[str, str] | None = None
    reserved_exactly: Mapping[str, str] | None = None
    joined_paths: bool = False
    stored: Sequence[str] | None = None


def problem_with_names(names: StorableNames, columns: pa.Schema) -> str | None:
    """Return why a target cannot store columns of these names, as a sentence that continues its key; None if it can.

    No sink takes a name that is empty or has NUL, a column that begins with _, and two names side by side that most
    engines take for one.
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
    """Return why an engine could not tell a field from another one beside it, as a sentence; None if it can."""
    for field in beside:
        if field is not new and folded(field.name) == folded(new.name):
            return f"it differs from {_shown((field.name,))} by case only, and most engines see one name"
        dotted, other = (new, field) if len(new.name) > len(field.name) else (field, new)
        if folded(dotted.name).startswith(f"{folded(other.name)}.") and pa.types.is_nested(other.type):
            return f"{_shown((dotted.name,))} could be the path of a field inside {_shown((other.name,))}"
    return None


def refuse_clash(new: pa.Field, beside: Iterable[pa.Field], within: Path, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` when an engine could not tell a field of the rows, which a table does not have, from those
    that the table has beside it."""
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
    """Fields side by side, with the path to them: all columns, then those of each struct inside."""
    yield within, fields
    for field in fields:
        for path, struct in _structs(field.type, (*within, field.name)):
            yield from _levels(list(struct), path)


def _structs(kind: pa.DataType, path: Path) -> Iterator[tuple[Path, pa.DataType]]:
    """The outermost structs of a type, with their paths."""
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
