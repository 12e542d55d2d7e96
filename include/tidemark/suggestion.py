"""Which known name a person may have meant by an unknown word."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``did you mean "cut"?``, or nothing when no allowed word is close."""
    spelling = {name.lower(): name for name in allowed}
    close = get_close_matches(word.lower(), list(spelling), n=1)
    return f'did you mean "{spelling[close[0]]}"?' if close else ""
