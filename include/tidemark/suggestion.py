"""Guesses the known name that a person meant by an unknown word."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``did you mean "cut"?``, or nothing when no allowed word is close."""
    spelling = {name.lower(): name for name in allowed}
    close = get_close_matches(word.lower(), list(spelling), n=1)
    return f'did you mean "{spelling[close[0]]}"?' if close else ""


def with_nearest(message: str, word: str, allowed: Collection[str], *, listed: bool = False) -> str:
    """The message and, if an allowed word is close, ``; did you mean ..?``; with ``listed`` all allowed words too."""
    advice = " ".join(filter(None, [nearest(word, allowed), f"allowed: {', '.join(allowed)}" if listed else ""]))
    return f"{message}; {advice}" if advice else message
