"""Turns dataclasses into JSON. ``--json`` and the page use the same dataclasses.

Each field is a key, in the order of the class, and so is each property that is marked with ``in_json``.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

NOT_IN_JSON: Final[Mapping[str, str]] = {"json": "not"}  # marks a field that only the code needs
INLINE: Final[Mapping[str, str]] = {"json": "inline"}  # marks a field whose keys become keys of the outer object
Getter = TypeVar("Getter", bound=Callable[[Any], Any])


def in_json(getter: Getter) -> Getter:
    """Mark the getter of a property, so that the property becomes a key in JSON."""
    vars(getter)["in_json"] = True
    return getter


def json_value(value: object) -> Any:
    """Convert a value that the JSON encoder does not know: a dataclass to a dictionary, bytes to base64, a time to ISO
    format.

    The encoder itself converts the values inside a dataclass; ``asdict`` would copy them all and take four times as
    long.
    """
    if is_dataclass(value):
        return dict(_pairs(value))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _pairs(value: object) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    for name, key in _keys(kind):
        part = getattr(value, name)
        if key:
            yield key, part
        else:
            yield from _pairs(part)


@cache
def _keys(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return each attribute with its key; the key is empty for an inline one. ``pipeline_name`` has the key
    ``pipeline``."""
    public = [field for field in fields(kind) if field.metadata != NOT_IN_JSON]
    keys = [(field.name, "" if field.metadata == INLINE else field.name) for field in public]
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, property) and getattr(member.fget, "in_json", False):
                keys.append((name, name))
    return tuple((name, "pipeline" if key == "pipeline_name" else key) for name, key in keys)
