"""Defines what happens to a record with fields that the schema does not have."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class OnUnknown(StrEnum):
    """The treatment of a record with fields that the schema does not have. A pipeline file sets it for each JSON
    format; for such records it overrides ``on_error``."""

    COUNT = "count"  # its row lacks these fields, and they are counted
    DEAD_LETTER = "dead_letter"
    FAIL = "fail"


def on_unknown(config: Mapping[str, Any]) -> OnUnknown:
    """Return the setting from the ``decode`` of an order."""
    return OnUnknown(config.get("unknown_fields", OnUnknown.COUNT))
