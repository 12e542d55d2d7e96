"""Checks the bounds of a JSON Schema: which values of the right type are too small, too long, too many or malformed."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.json_shapes.shapes import Rule

NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
TEXTS: Final = ("minLength", "maxLength", "pattern")
LISTS: Final = ("minItems", "maxItems", "uniqueItems")
OBJECTS: Final = ("minProperties", "maxProperties")
_OF_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": NUMBERS, "number": NUMBERS, "string": TEXTS, "array": LISTS, "object": OBJECTS, "boolean": ()
}  # fmt: skip


def rules_of(schema: Mapping[str, Any], kind: str) -> tuple[Rule, ...]:
    """Return the bounds of a type; raises ``ValueError(word, why)`` for one that is wrong or cannot be checked."""
    rules = (_rule(word, schema[word], schema) for word in _OF_KINDS[kind] if word in schema)
    return tuple(rule for rule in rules if rule is not None)


def _rule(word: str, limit: Any, schema: Mapping[str, Any]) -> Rule | None:
    if isinstance(limit, float) and not math.isfinite(limit):  # 1e999 in a file
        raise ValueError(word, f"is {limit!r}")
    match word:
        case "minimum" | "maximum" if isinstance(limit, int | float) and not isinstance(limit, bool):
            exclusive = schema.get(f"exclusive{word.capitalize()}") is True  # as draft 4 has it
            return Rule(f"exclusive{word.capitalize()}" if exclusive else word, _exact(limit))
        case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(limit, bool):
            return None
        case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(limit, int | float):
            return Rule(word, _exact(limit))
        case "multipleOf" if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0:
            return Rule(word, _exact(limit))
        case "pattern" if isinstance(limit, str):
            _check_pattern(limit)
            return Rule(word, limit)
        case "uniqueItems" if isinstance(limit, bool):
            return Rule(word, limit) if limit else None
        case _ if word in (*TEXTS[:2], *LISTS[:2], *OBJECTS) and type(limit) in (int, float) and limit == int(limit):
            return Rule(word, int(limit))
    raise ValueError(word, f"is {limit!r}")


def _exact(limit: float) -> Decimal:
    """Return the number as it was written: 0.1 is exactly a tenth."""
    return Decimal(str(limit))


def _check_pattern(pattern: str) -> None:
    """Raise ``ValueError`` unless RE2 can use the pattern. RE2's time is linear in the length of a text."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        raise ValueError("pattern", f"is {pattern[:60]!r}, which RE2 cannot use (it has no look-around)") from None
