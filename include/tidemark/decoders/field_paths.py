"""Names fields of records that no schema has: their names are data, so they are quoted or cut where they must be."""

import json
import re
from functools import lru_cache
from typing import Final

ELEMENT: Final = "[]"  # in a path: of each element of a list, and of each value of a map
_NAME_LIMIT = 40
_PLAIN_NAME = re.compile(rf'[^."\[\]]{{1,{_NAME_LIMIT}}}')


def quoted(text: str) -> str:
    """A name from the data in quotes, as ASCII and at most 40 characters, so that any sink can store a reason."""
    return json.dumps(text if len(text) <= _NAME_LIMIT else f"{text[:_NAME_LIMIT]}...")


@lru_cache(maxsize=10_000)
def label(name: str) -> str:
    """A name as a step of a path: in quotes, as ASCII and cut, when it is long or could be taken for several steps."""
    return name if _PLAIN_NAME.fullmatch(name) and name.isprintable() else quoted(name)


def joined_path(path: str, name: str) -> str:
    """Such as ``address.zip``; without a path before it, the name alone."""
    return f"{path}.{label(name)}" if path else label(name)
