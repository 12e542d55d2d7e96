"""Says what happens to a record with fields that the schema has not."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class OnUnknown(StrEnum):
    """The treatment of fields that the schema does not have. A pipeline file sets it for each format of JSON, whatever
    ``on_error`` says of other records."""

    COUNT = "count"  # it is read without them
    DEAD_LETTER = "dead_letter"
    FAIL = "fail"


def on_unknown(config: Mapping[str, Any]) -> OnUnknown:
    """Return what ``decode`` of an order says."""
    return OnUnknown(config.get("unknown_fields", OnUnknown.COUNT))
