"""Functions about text: strings that can be stored, the known name nearest to an unknown word, SQL by name."""

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
    """Return false for a string with a lone surrogate: half of a character, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def folded(name: str) -> str:
    """Return a form that is equal for all names that some engine may treat as one name.

    Such names differ only by case, also as Java compares them (it treats the i without a dot as i), or by the form in
    which Unicode composes a letter.
    """
    composed = normalize("NFC", name).replace("\u0130", "i")
    return normalize("NFC", composed.upper().casefold())


def without_links(text: str) -> str:
    """Return the text of a page without its links. The words of a link stay; a link in brackets is removed."""
    return _LINK.sub(lambda link: link[1] or "", text)


def column_of_arrow(name: str) -> str:
    """Return the name by which functions of Arrow find this column. Arrow reads a name that begins with a dot as a path
    to a nested field, so such a name is written as an escaped path."""
    return f".{_OF_PATHS.sub(lambda part: f'{_ESCAPE}{part[0]}', name)}" if name.startswith(".") else name


def storable(text: str) -> str:
    """Return the text with escapes for what a database cannot store: NUL, and halves of characters."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def readable(content: bytes | None, most: int) -> str:
    """A key or a value of a record, cut: text as it is, all else as Python writes it."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return shortened(repr(content), most)
    return shortened(text if text.isprintable() else repr(text), most)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 2]}.."


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ``did you mean "cut"?``, or an empty text if no allowed word is close."""
    spelling = {name.lower(): name for name in allowed}
    close = get_close_matches(word.lower(), list(spelling), n=1)
    return f'did you mean "{spelling[close[0]]}"?' if close else ""


def with_nearest(message: str, word: str, allowed: Collection[str], *, listed: bool = False) -> str:
    """Return the message, then ``; did you mean ..?`` if an allowed word is close, then with ``listed`` all allowed
    words."""
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
