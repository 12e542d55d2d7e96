"""Knows the schemas that a converter has written beside records, ``{"schema": .., "payload": ..}``.

All records of a table begin with the same text, which is longer than what follows it. So it is parsed once.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

SCHEMAS = 64  # that are known at once: the one that was seen longest ago goes
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
    """``scanner`` parses the records themselves."""

    def __init__(self, scanner: json.JSONDecoder) -> None:
        self._scanner = scanner
        self._known: list[Beginning] = []  # the one that was seen last stands first
        self._unknown = 0  # records with another one

    def read(self, text: str, start: int) -> tuple[dict[str, Any], int] | None:
        """(schema, where the payload begins) of a record whose beginning is known."""
        for place, known in enumerate(self._known):
            if text.startswith(known.text, start):
                if place:
                    self._known.insert(0, self._known.pop(place))
                spaces = _SPACES.match(text, start + len(known.text))  # another producer may write more of them
                assert spaces is not None, "there may be none"
                return known.schema, spaces.end()
        return None

    def learn(self, text: str, start: int, record: Any) -> None:
        """Know the beginning of a record that was parsed, if it has a schema before its payload, and nothing else."""
        if type(record) is not dict or list(record) != ["schema", "payload"] or type(record["schema"]) is not dict:
            return
        self._unknown += 1
        if len(self._known) == SCHEMAS and self._unknown % SCHEMAS:  # to learn takes a second parse: not of each record
            return
        before = _BEFORE_SCHEMA.match(text, start)
        if before is None:  # a name with an escape
            return
        _, end = self._scanner.raw_decode(text, before.end())
        payload = _BEFORE_PAYLOAD.match(text, end)
        if payload is not None:
            self._known.insert(0, Beginning(text[start : payload.end()], record["schema"]))
            del self._known[SCHEMAS:]
