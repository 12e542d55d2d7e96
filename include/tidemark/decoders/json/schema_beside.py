"""Remembers the schemas that a converter writes beside records, ``{"schema": .., "payload": ..}``.

All records of a table begin with the same schema text, which is often longer than the payload. So it is parsed once.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

SCHEMAS = 64  # remembered at once; a new one replaces the least recently used
_SPACE = r"[ \t\n\r]*"
_BEFORE_SCHEMA = re.compile(rf'\{{{_SPACE}"schema"{_SPACE}:{_SPACE}')
_BEFORE_PAYLOAD = re.compile(rf'{_SPACE},{_SPACE}"payload"{_SPACE}:')
_SPACES = re.compile(_SPACE)


@dataclass(frozen=True)
class Beginning:
    """The text of a record up to the colon before its payload, and the schema in it."""

    text: str
    schema: dict[str, Any]


class SchemaBeside:
    """Remembers the beginnings of records up to the payload. ``scanner`` parses the records themselves."""

    def __init__(self, scanner: json.JSONDecoder) -> None:
        self._scanner = scanner
        self._known: list[Beginning] = []  # the most recently used first
        self._unknown = 0  # records with a beginning that was not known

    def read(self, text: str, start: int) -> tuple[dict[str, Any], int] | None:
        """Return (schema, position where the payload begins) if the beginning of the record is known; else None."""
        for place, known in enumerate(self._known):
            if text.startswith(known.text, start):
                if place:
                    self._known.insert(0, self._known.pop(place))
                spaces = _SPACES.match(text, start + len(known.text))  # another producer may write more spaces
                assert spaces is not None, "the pattern also matches no space"
                return known.schema, spaces.end()
        return None

    def learn(self, text: str, start: int, record: Any) -> None:
        """Remember the beginning of a parsed record, if it has exactly a schema and then a payload."""
        if type(record) is not dict or list(record) != ["schema", "payload"] or type(record["schema"]) is not dict:
            return
        self._unknown += 1
        if len(self._known) == SCHEMAS and self._unknown % SCHEMAS:  # learning parses again, so not for each record
            return
        before = _BEFORE_SCHEMA.match(text, start)
        if before is None:  # a name with an escape
            return
        _, end = self._scanner.raw_decode(text, before.end())
        payload = _BEFORE_PAYLOAD.match(text, end)
        if payload is not None:
            self._known.insert(0, Beginning(text[start : payload.end()], record["schema"]))
            del self._known[SCHEMAS:]
