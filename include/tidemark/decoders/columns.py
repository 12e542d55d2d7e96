"""Names of the columns that are made of other parts of a record than its value."""

from typing import Final

WHOLE: Final = "value"  # the column of a value, or of a key, that has no fields
HEADERS_COLUMN: Final = "headers"


def key_column(field: str) -> str:
    """The column of a field of the key."""
    return "key" if field == WHOLE else f"key_{field}"
