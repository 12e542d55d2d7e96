"""Values that JSON does not know."""

from base64 import b64encode
from datetime import datetime


def as_json_text(value: object) -> str:
    """What JSON has of a value that it does not know: bytes as base64, times in ISO format."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)
