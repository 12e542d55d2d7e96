"""Reads SQL files of named statements: a line ``-- name: x``, and the statement below it.

A line ``-- include: x`` in it stands for the statement of that name, a part of several.
"""

import re
from importlib.resources import files
from typing import LiteralString, cast

_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)


def named_queries(package: str, file: str) -> dict[str, LiteralString]:
    """The statements of a file by their names."""
    text = files(package).joinpath(file).read_text()
    blocks = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    parts = dict(zip(blocks[::2], map(str.strip, blocks[1::2]), strict=True))
    queries = {name: _INCLUDE.sub(lambda included: parts[included[1]], sql) for name, sql in parts.items()}
    return cast("dict[str, LiteralString]", queries)
