"""Functions about text: which strings can be stored, the known name that an unknown word comes near, SQL by names."""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib.resources import files
from typing import LiteralString, cast
from unicodedata import normalize

_ESCAPE = "\\"
_OF_PATHS = re.compile(r"[.\[\\]")
_LINK = re.compile(r" \(\[[^\]]*\]\([^)]*\)\)|\[([^\]]*)\]\([^)]*\)")
_INCLUDE = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)


def is_text(text: str) -> bool:
    """False for a string with a lone surrogate: half of a character, which has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def folded(name: str) -> str:
    """Return what is the same for all names that an engine may take for one: those that differ by case, also as Java
    compares them (it takes the i without a dot for i), or by the form in which Unicode composes a letter."""
    composed = normalize("NFC", name).replace("\u0130", "i")
    return normalize("NFC", composed.upper().casefold())


def without_links(text: str) -> str:
    """The text of a page without its links: their words stay, and a link in brackets goes."""
    return _LINK.sub(lambda link: link[1] or "", text)


def column_of_arrow(name: str) -> str:
    """Return what functions of Arrow take for the column of this name: one that begins with a dot they read as a path
    to a field inside a column, so it is written as such a path."""
    return f".{_OF_PATHS.sub(lambda part: f'{_ESCAPE}{part[0]}', name)}" if name.startswith(".") else name


def storable(text: str) -> str:
    """The text with escapes for what a database cannot store: NUL, and halves of characters."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``did you mean "cut"?``, or nothing when no allowed word is close."""
    spelling = {name.lower(): name for name in allowed}
    close = get_close_matches(word.lower(), list(spelling), n=1)
    return f'did you mean "{spelling[close[0]]}"?' if close else ""


def with_nearest(message: str, word: str, allowed: Collection[str], *, listed: bool = False) -> str:
    """The message and, if an allowed word is close, ``; did you mean ..?``; with ``listed`` all allowed words too."""
    advice = " ".join(filter(None, [nearest(word, allowed), f"allowed: {', '.join(allowed)}" if listed else ""]))
    return f"{message}; {advice}" if advice else message


def named_queries(package: str, file: str) -> dict[str, LiteralString]:
    """Read the statements of an SQL file by their names: each stands below a line ``-- name: x``.

    A line ``-- include: x`` in a statement stands for the statement of that name.
    """
    text = files(package).joinpath(file).read_text()
    blocks = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    parts = dict(zip(blocks[::2], map(str.strip, blocks[1::2]), strict=True))
    queries = {name: _INCLUDE.sub(lambda included: parts[included[1]], sql) for name, sql in parts.items()}
    return cast("dict[str, LiteralString]", queries)
