"""Tells which Python strings files, databases and brokers can store as text."""


def is_text(text: str) -> bool:
    """False for a string with a lone surrogate: half of a character, which has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """The text with escapes for what a database cannot store: NUL, and halves of characters."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
