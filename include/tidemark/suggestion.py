"""What a person may have meant by a word that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``did you mean "cut"?``, or nothing when no allowed word is close."""
    words = {one.lower(): one for one in allowed}
    close = get_close_matches(word.lower(), list(words), n=1)
    return f'did you mean "{words[close[0]]}"?' if close else ""
