"""What a person probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``did you mean "cut"?``, or nothing when no allowed word is close; upper and lower case are alike."""
    words = {candidate.lower(): candidate for candidate in allowed}
    close = get_close_matches(word.lower(), list(words), n=1)
    return f'did you mean "{words[close[0]]}"?' if close else ""
