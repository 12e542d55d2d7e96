"""Parses Spark DDL, such as ``id BIGINT NOT NULL, tags ARRAY<STRING>``, into fields.

A record must have every ``NOT NULL`` field, and not as null; other fields may be null or absent. A TIMESTAMP without an
offset is UTC. A BINARY is base64, as in Spark. TIMESTAMP_NTZ is not supported: every time has a zone.
"""

import re
from dataclasses import dataclass

from tidemark.decoders.json_shapes.nested import Field, ListOf, MapOf, Struct
from tidemark.decoders.json_shapes.shapes import Boolean, Content, Day, Exact, Instant, Integer, Number, Shape, Text
from tidemark.decoders.names import check_names, column_of_field
from tidemark.errors import ConfigurationError

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[A-Za-z0-9_]+)|(?P<text>'[^']*')|(?P<sign>\S)|$)")
_SCALARS: dict[str, Shape] = {
    "BOOLEAN": Boolean(),
    "BYTE": Integer(8), "TINYINT": Integer(8), "SHORT": Integer(16), "SMALLINT": Integer(16),
    "INT": Integer(32), "INTEGER": Integer(32), "LONG": Integer(64), "BIGINT": Integer(64),
    "FLOAT": Number(32), "REAL": Number(32), "DOUBLE": Number(64),
    "STRING": Text(), "BINARY": Content(), "DATE": Day(), "TIMESTAMP": Instant("UTC"), "TIMESTAMP_LTZ": Instant("UTC"),
}  # fmt: skip
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_TYPES = (*_SCALARS, "DECIMAL(p,s)", "ARRAY<..>", "STRUCT<..>", "MAP<STRING,..>")
_MAX_PRECISION = 38
_DEPTH_LIMIT = 32


def parse(text: str) -> tuple[Field, ...]:
    """Return the columns of a DDL text; ``ConfigurationError`` gives the position (from 0) and what was expected
    there."""
    reader = _Reader(_tokens(text))
    fields = reader.fields(depth=0)
    reader.end()
    return fields


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while match := _TOKEN.match(text, position):
        kind = match.lastgroup
        if kind is None:
            break
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        position = match.end()
    return [*tokens, _Token("end", "", len(text))]


class _Reader:
    """Recursive descent over the tokens; one method per rule of the grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._index = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def fields(self, depth: int) -> tuple[Field, ...]:
        """``field (',' field)*``"""
        position = self._next.position
        fields = [self._field(depth)]
        while self._accept(","):
            fields.append(self._field(depth))
        check_names(
            [column_of_field(field.name) if depth == 0 else field.name for field in fields],
            lambda name: f"DDL: {name} (list at position {position})",
            inside=depth > 0,
        )
        return tuple(fields)

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong("a comma or the end")

    def _field(self, depth: int) -> Field:
        """``name [':'] type ['NOT' 'NULL'] ['COMMENT' text]``"""
        name = self._name()
        self._accept(":")
        shape = self._type(depth)
        required = self._accept("NOT")
        if required and not self._accept("NULL"):
            raise self._wrong("NULL")
        if self._accept("COMMENT"):
            if self._next.kind != "text":
                raise self._wrong("a comment in quotes")
            self._index += 1
        return Field(name, shape, required=required, nullable=not required)

    def _name(self) -> str:
        token = self._next
        if token.kind not in ("word", "quoted"):
            raise self._wrong("a column name")
        self._index += 1
        return token.text if token.kind == "word" else token.text[1:-1].replace("``", "`")

    def _type(self, depth: int) -> Shape:
        token = self._next
        word = token.text.upper() if token.kind == "word" else ""
        if depth > _DEPTH_LIMIT:
            raise self._wrong(f"at most {_DEPTH_LIMIT} nested types")
        if word not in _SCALARS and word not in _DECIMALS and word not in ("ARRAY", "STRUCT", "MAP"):
            raise self._wrong("a type", f"write one of {', '.join(_TYPES)}")
        self._index += 1
        if word in _SCALARS:
            return _SCALARS[word]
        if word in _DECIMALS:
            return self._decimal()
        self._expect("<")
        shape = self._nested(word, depth + 1)
        self._expect(">")
        return shape

    def _nested(self, word: str, depth: int) -> Shape:
        if word == "STRUCT":
            return Struct(self.fields(depth))
        if word == "ARRAY":
            return ListOf(self._type(depth), nullable=True)
        if not self._accept("STRING"):
            raise self._wrong("STRING (names of JSON objects are text)")
        self._expect(",")
        return MapOf(self._type(depth), nullable=True)

    def _decimal(self) -> Shape:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number(1, _MAX_PRECISION)
            if self._accept(","):
                scale = self._number(0, precision)
            self._expect(")")
        return Exact(precision, scale)

    def _number(self, lowest: int, highest: int) -> int:
        text = self._next.text
        if not (text.isdecimal() and len(text) < 4 and lowest <= int(text) <= highest):
            raise self._wrong(f"a number from {lowest} to {highest}")
        self._index += 1
        return int(text)

    def _accept(self, text: str) -> bool:
        token = self._next
        if token.kind in ("word", "sign") and token.text.upper() == text:
            self._index += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._wrong(repr(text))

    def _wrong(self, expected: str, next_step: str = "") -> ConfigurationError:
        token = self._next
        actual = "the end" if token.kind == "end" else repr(token.text[:40])
        return ConfigurationError(
            f"DDL: expected {expected} at position {token.position}, found {actual}",
            next_step=next_step or "write columns such as 'id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>'",
        )
