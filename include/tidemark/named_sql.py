"""Reads SQL files of named statements: a line ``-- name: x``, and the statement below it."""

import re
from importlib.resources import files
from typing import LiteralString, cast


def named_queries(package: str, file: str) -> dict[str, LiteralString]:
    """The statements of a file by their names."""
    text = files(package).joinpath(file).read_text()
    blocks = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return {name: cast("LiteralString", sql.strip()) for name, sql in zip(blocks[::2], blocks[1::2], strict=True)}
