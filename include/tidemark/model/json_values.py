"""Turns values into those of JSON: what ``--json`` prints and the page answers is made of the same dataclasses.

Each field is a key, in the order of the class, and so is each property that is marked with ``in_json``.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar

NOT_IN_JSON: Final[Mapping[str, str]] = {"json": "not"}  # of a field that only the code needs
INLINE: Final[Mapping[str, str]] = {"json": "inline"}  # the keys of this field's value stand among those of its holder
Getter = TypeVar("Getter", bound=Callable[[Any], Any])


def in_json(getter: Getter) -> Getter:
    """Mark the getter of a property: JSON has it as a key."""
    vars(getter)["in_json"] = True
    return getter


def json_value(value: object) -> Any:
    """For the encoder of JSON, what it does not know: a dataclass by its keys, bytes as base64, a time in ISO format.

    The encoder goes on with the values in a dataclass: ``asdict`` would copy them all, in four times the time.
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
    """Each attribute and its key, which is empty for one that stands inline. A pipeline is known by its name alone."""
    public = [field for field in fields(kind) if field.metadata != NOT_IN_JSON]
    keys = [(field.name, "" if field.metadata == INLINE else field.name) for field in public]
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, property) and getattr(member.fget, "in_json", False):
                keys.append((name, name))
    return tuple((name, "pipeline" if key == "pipeline_name" else key) for name, key in keys)
