"""The shapes of JSON values, and lists of such values as Arrow columns.

Every shape has two methods. ``column`` turns many values into an array at once, fast, and raises ``Misfit`` when any of
them is wrong. ``problem_with`` gives the reason why a single value is wrong, or None. They agree: ``column`` raises
exactly when ``problem_with`` gives a reason for one of the values (a property test compares them).

No value is converted to another type. An integer has no fraction and no exponent (1.0 is a number); a number may be an
integer.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.one_by_one import Misfit
from tidemark.times.event_time import INSTANT, instants


class Absent:
    """The type of ``ABSENT``, which stands for a property that a record does not have."""


ABSENT = Absent()
_DATE = r"^\d{4}-\d\d-\d\d$"
_NONE = type(None)
_CANNOT_BUILD = (pa.ArrowException, ValueError, ArithmeticError)
_JSON_NAMES = {
    str: "string", int: "integer", float: "number", Decimal: "number", bool: "boolean", dict: "object", list: "array",
    _NONE: "null",
}  # fmt: skip


def json_name(value: object) -> str:
    """The name JSON has for the type of a parsed value, or of one that was made of it."""
    return next(_JSON_NAMES[kind] for kind in type(value).__mro__ if kind in _JSON_NAMES)


class Shape(ABC):
    """What a value that is present and not null may be; whether it may be null is checked by what holds the shape."""

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType: ...

    @abstractmethod
    def column(self, values: list[Any]) -> pa.Array:
        """An array of all values, null for None; raises ``Misfit``."""

    @abstractmethod
    def problem_with(self, value: Any, path: str) -> str | None:
        """Why a value that is not None is wrong, None when it is right; ``path`` is its name in the reason."""


class Scalar(Shape):
    """A value without parts; ``types`` are the Python types that the JSON parser may give for it."""

    expected: ClassVar[str]
    types: ClassVar[frozenset[type]]

    @property
    @abstractmethod
    def beyond(self) -> str:
        """Why a value of the right type cannot be stored."""

    def column(self, values: list[Any]) -> pa.Array:
        if not set(map(type, values)) <= self.types | {_NONE}:
            raise Misfit
        try:
            return self._built(values)
        except _CANNOT_BUILD as error:
            raise Misfit from error

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) not in self.types:
            return f"{path}: expected {self.expected}, found {json_name(value)}"
        try:
            self._built([value])
        except (*_CANNOT_BUILD, Misfit):
            return f"{path}: {self.beyond}"
        return None

    def _built(self, values: list[Any]) -> pa.Array:
        """An array of values of the right Python types; raises one of ``_CANNOT_BUILD`` or ``Misfit``."""
        return pa.array(values, self.arrow)


@dataclass(frozen=True)
class Boolean(Scalar):
    expected = "boolean"
    types = frozenset({bool})
    beyond = "not a boolean"
    arrow = pa.bool_()


@dataclass(frozen=True)
class Integer(Scalar):
    """A signed integer of 8, 16, 32 or 64 bits."""

    bits: int = 64
    expected = "integer"
    types = frozenset({int})

    @property
    def beyond(self) -> str:
        return f"outside the range of a {self.bits}-bit integer"

    @property
    def arrow(self) -> pa.DataType:
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[self.bits]


@dataclass(frozen=True)
class Number(Scalar):
    """A float of 32 or 64 bits: the nearest to the written number; it must be finite."""

    bits: int = 64
    expected = "number"
    types = frozenset({int, float, Decimal})

    @property
    def beyond(self) -> str:
        return f"outside the range of a {self.bits}-bit float"

    @property
    def arrow(self) -> pa.DataType:
        return pa.float32() if self.bits == 32 else pa.float64()

    def _built(self, values: list[Any]) -> pa.Array:
        if not set(map(type, values)) <= {float, _NONE}:
            values = [None if value is None else float(value) for value in values]
        built = pa.array(values, pa.float64()).cast(self.arrow)
        if pc.all(pc.is_finite(built)).as_py() is False:
            raise Misfit
        return built


@dataclass(frozen=True)
class Text(Scalar):
    expected = "string"
    types = frozenset({str})
    beyond = "holds a lone surrogate, which is not a character"
    arrow = pa.string()


@dataclass(frozen=True)
class Day(Scalar):
    """A ``date`` of RFC 3339, of the years 1 to 9999."""

    expected = "date string"
    types = frozenset({str})
    beyond = "not a date (YYYY-MM-DD)"
    arrow = pa.date32()

    def _built(self, values: list[Any]) -> pa.Array:
        return self.parse_texts(pa.array(values, pa.string()))

    def parse_texts(self, text: pa.Array) -> pa.Array:
        """The dates of texts; raises ``Misfit``, or ``pa.ArrowInvalid`` for a date that does not exist."""
        fits = pc.and_(pc.match_substring_regex(text, _DATE), pc.invert(pc.starts_with(text, "0000")))
        if pc.all(fits).as_py() is False:
            raise Misfit
        return text.cast(self.arrow)


@dataclass(frozen=True)
class Instant(Scalar):
    """A ``date-time`` of RFC 3339; with a ``zone`` its offset may be missing, and it is a local time of that zone."""

    zone: str | None = None
    expected = "date-time string"
    types = frozenset({str})
    arrow = INSTANT

    @property
    def beyond(self) -> str:
        return "not an RFC 3339 date-time" + (" with a zone" if self.zone is None else "")

    def _built(self, values: list[Any]) -> pa.Array:
        return self.parse_texts(pa.array(values, pa.string()))

    def parse_texts(self, text: pa.Array) -> pa.Array:
        """The times of texts; raises ``Misfit``."""
        built = instants(text, self.zone)
        if built.null_count > text.null_count:
            raise Misfit
        return built


_EXPONENT_LIMIT = 1_000  # far above the 38 digits of the largest DECIMAL


@dataclass(frozen=True)
class Exact(Scalar):
    """A decimal; a value with more digits than fit is wrong, zeros at the end of the fraction do not count."""

    precision: int
    scale: int
    expected = "number"
    types = frozenset({int, Decimal})

    @property
    def beyond(self) -> str:
        return f"does not fit DECIMAL({self.precision},{self.scale})"

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def _built(self, values: list[Any]) -> pa.Array:
        # pyarrow 26 crashes on an exponent such as that of 1e-999999999, and the whole task with it.
        if any(type(value) is Decimal and abs(value.adjusted()) > _EXPONENT_LIMIT for value in values):
            raise Misfit
        return super()._built(values)


@dataclass(frozen=True)
class OneOf(Shape):
    """A scalar shape of which only some values are allowed."""

    shape: Shape
    allowed: frozenset[Any]

    @property
    def arrow(self) -> pa.DataType:
        return self.shape.arrow

    def column(self, values: list[Any]) -> pa.Array:
        built = self.shape.column(values)
        if not set(values) <= self.allowed | {None}:
            raise Misfit
        return built

    def problem_with(self, value: Any, path: str) -> str | None:
        reason = self.shape.problem_with(value, path)
        if reason is None and value not in self.allowed:
            return f"{path}: not one of the {len(self.allowed)} values the schema allows"
        return reason
