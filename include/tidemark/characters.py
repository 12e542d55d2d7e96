"""Whether a Python string is text that files, databases and brokers can store."""


def is_text(text: str) -> bool:
    """False for a string with a lone surrogate: half of a character, which has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
