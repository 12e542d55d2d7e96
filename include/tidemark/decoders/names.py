"""Names of columns, and of fields that no schema has. The latter are data, so they are quoted or cut if necessary."""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tidemark.errors import ConfigurationError
from tidemark.text import folded, is_text

WHOLE: Final = "value"  # the column of a value, or a key, without fields
HEADERS_COLUMN: Final = "headers"
ELEMENT: Final = "[]"  # in a path: each element of a list, or each value of a map
_NAME_LIMIT = 40
_PLAIN_NAME = re.compile(rf'[^."\[\]]{{1,{_NAME_LIMIT}}}')


def key_column(field: str) -> str:
    """Return the column of a field of the key."""
    return "key" if field == WHOLE else f"key_{field}"


def column_of_field(field: str) -> str:
    """Return the column of a field of the value: its name, without a prefix ``__``, which no column may have."""
    return field.removeprefix("__") or field


def check_names(names: list[str], place: Callable[[str], str], *, inside: bool = False) -> None:
    """Raise ``ConfigurationError`` unless all names can be columns of one table. ``place`` returns the place of a name.

    With ``inside`` they are fields of a struct, whose names may begin with _.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not name or (name.startswith("_") and not inside) or "\0" in name or not is_text(name):
            raise ConfigurationError(
                f"{place(name)} cannot be the name of a column",
                next_step="use a name that is not empty, has no NUL, and does not begin with _ (those are Tidemark's "
                "own columns)",
            )
        twin = seen.get(folded(name))
        if twin is not None:
            raise ConfigurationError(
                f"{place(name)} has the same name as {twin}",
                next_step="keep one of the two: in Spark and most engines upper and lower case of a name are the same",
            )
        seen[folded(name)] = name


def quoted(text: str) -> str:
    """Return a name from the data in quotes, as ASCII and cut after 40 characters, so that any sink can store a
    reason."""
    return json.dumps(text if len(text) <= _NAME_LIMIT else f"{text[:_NAME_LIMIT]}...")


@lru_cache(maxsize=10_000)
def label(name: str) -> str:
    """Return a name as one step of a path: quoted, ASCII and cut if it is long, or looks like several steps."""
    return name if _PLAIN_NAME.fullmatch(name) and name.isprintable() else quoted(name)


def joined_path(path: str, name: str) -> str:
    """Return a path such as ``address.zip``; without a path before it, the name alone."""
    return f"{path}.{label(name)}" if path else label(name)
