"""The shapes of JSON values, and lists of such values as Arrow columns.

Every shape has two methods. ``column`` turns many values into an array at once, fast, and raises ``Misfit`` if any of
them is wrong. ``problem_with`` gives the reason why a single value is wrong, or None. They agree: ``column`` raises
exactly if ``problem_with`` gives a reason for one of the values (a property test compares them).

No value is converted to another type. A number may be an integer. An integer has no fraction and no exponent (1.0 is a
number), except in a JSON Schema, where it is ``Whole``.
"""

from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
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
    """Return JSON's name for the type of a parsed value, also of a value that was built from it."""
    return next(_JSON_NAMES[kind] for kind in type(value).__mro__ if kind in _JSON_NAMES)


class Shape(ABC):
    """The type of a value that is present and not null. The field, list or map around the value checks whether it may
    be null."""

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType: ...

    @abstractmethod
    def column(self, values: list[Any]) -> pa.Array:
        """Return an array of all values, null for None; raises ``Misfit``."""

    @abstractmethod
    def problem_with(self, value: Any, path: str) -> str | None:
        """Return the reason why a value that is not None is wrong; None if it is right. The reason begins with
        ``path``."""


class Scalar(Shape):
    """A value without parts; ``types`` are the Python types that the JSON parser may give for it."""

    expected: ClassVar[str]
    types: ClassVar[frozenset[type]]

    @property
    @abstractmethod
    def beyond(self) -> str:
        """The reason why a value of the right type cannot be stored."""

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
        """Return an array of values of the right Python types; raises one of ``_CANNOT_BUILD`` or ``Misfit``."""
        return pa.array(values, self.arrow)

    def compared(self, value: Any) -> Any:
        """Return a valid value in the form in which it is compared with others."""
        return value


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


_LONGEST_WHOLE = 40  # digits: far above the 19 of 64 bits


@dataclass(frozen=True)
class Whole(Integer):
    """An integer in JSON Schema since draft 6: a number without a fraction, which may be written 1.0 or 3e0.

    Its numbers must be parsed as ``Decimal``, because a float would lose the last digit of 9007199254740993.0.
    """

    types = frozenset({int, Decimal})

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is Decimal and not _is_whole(value):
            return f"{path}: expected integer, found number"
        return super().problem_with(value, path)

    def _built(self, values: list[Any]) -> pa.Array:
        return super()._built([self.compared(value) if type(value) is Decimal else value for value in values])

    def compared(self, value: Any) -> Any:
        if type(value) is not Decimal:
            return value
        if not _is_whole(value) or (value and value.adjusted() > _LONGEST_WHOLE):
            raise Misfit
        return int(value) if value else 0  # int() would write out all zeros of 0e999999999


def _is_whole(value: Decimal) -> bool:
    """Return whether all digits after the point are zeros. It uses no arithmetic, because arithmetic rounds."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and (exponent >= 0 or not any(digits[exponent:]))


@dataclass(frozen=True)
class Number(Scalar):
    """A float of 32 or 64 bits: the nearest to the written number, which must be finite."""

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

    def compared(self, value: Any) -> Any:
        return float(value)


@dataclass(frozen=True)
class Text(Scalar):
    expected = "string"
    types = frozenset({str})
    beyond = "holds a lone surrogate, which is not a character"
    arrow = pa.string()


@dataclass(frozen=True)
class Content(Scalar):
    """Bytes, written as base64 of RFC 4648 with padding."""

    expected = "string"
    types = frozenset({str})
    beyond = "not base64"
    arrow = pa.binary()

    def _built(self, values: list[Any]) -> pa.Array:
        return pa.array([None if value is None else b64decode(value, validate=True) for value in values], self.arrow)

    def compared(self, value: Any) -> Any:
        return b64decode(value, validate=True)


@dataclass(frozen=True)
class Day(Scalar):
    """A ``date`` of RFC 3339, in the years 1 to 9999."""

    expected = "date string"
    types = frozenset({str})
    beyond = "not a date (YYYY-MM-DD)"
    arrow = pa.date32()

    def _built(self, values: list[Any]) -> pa.Array:
        return self.parse_texts(pa.array(values, pa.string()))

    def parse_texts(self, text: pa.Array) -> pa.Array:
        """Return the dates of texts; raises ``Misfit``, or ``pa.ArrowInvalid`` for a date that does not exist."""
        fits = pc.and_(pc.match_substring_regex(text, _DATE), pc.invert(pc.starts_with(text, "0000")))
        if pc.all(fits).as_py() is False:
            raise Misfit
        return text.cast(self.arrow)


@dataclass(frozen=True)
class Instant(Scalar):
    """A ``date-time`` of RFC 3339. With a ``zone`` its offset may be missing: then it is a local time of that zone."""

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
        """Return the times of texts; raises ``Misfit``."""
        built = instants(text, self.zone)
        if built.null_count > text.null_count:
            raise Misfit
        return built


_EXPONENT_LIMIT = 1_000  # far above the 38 digits of the largest DECIMAL


@dataclass(frozen=True)
class Exact(Scalar):
    """A decimal. A value with more digits than the type has is wrong; zeros at the end of the fraction do not count."""

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
        # An exponent such as that of 1e-999999999 crashes pyarrow 26, and with it the whole task.
        if any(type(value) is Decimal and abs(value.adjusted()) > _EXPONENT_LIMIT for value in values):
            raise Misfit
        return super()._built(values)


@dataclass(frozen=True)
class OneOf(Shape):
    """A scalar shape of which only some values are allowed."""

    shape: Scalar
    allowed: frozenset[Any]

    @property
    def arrow(self) -> pa.DataType:
        return self.shape.arrow

    def column(self, values: list[Any]) -> pa.Array:
        built = self.shape.column(values)
        if not {self.shape.compared(value) for value in {*values} - {None}} <= self.allowed:
            raise Misfit
        return built

    def problem_with(self, value: Any, path: str) -> str | None:
        reason = self.shape.problem_with(value, path)
        if reason is None and self.shape.compared(value) not in self.allowed:
            return f"{path}: not one of the {len(self.allowed)} values that the schema allows"
        return reason


@dataclass(frozen=True)
class Rule:
    """A bound of a JSON Schema: its word, such as ``maxLength``, and its limit."""

    word: str
    limit: Any

    def holds(self, value: Any) -> bool:
        """Return whether a value of the right type is within the bound."""
        return bool(_HOLDS[self.word](value, self.limit))


_WIDE = Context(prec=2_000, Emax=MAX_EMAX, Emin=MIN_EMIN)  # more digits than a finite float has


def _exact(value: Any) -> Decimal:
    """Return a number exactly. The shortest text of a float is the text that was parsed, or means the same number."""
    return value if type(value) is Decimal else Decimal(repr(value))


def _comparable(value: Any) -> Any:
    """Return a form of the value that is the same for equal values: 1 equals 1.0, and the order of names does not
    count."""
    match value:
        case dict():
            return sorted((name, _comparable(item)) for name, item in value.items())
        case list():
            return [_comparable(item) for item in value]
        case Decimal() | float() | int() if not isinstance(value, bool):
            return _WIDE.normalize(_exact(value)) or 0  # -0.0 is 0
        case _:
            return value


def _are_unique(values: list[Any], _: Any) -> bool:
    return len({repr(_comparable(value)) for value in values}) == len(values)


def _matches(text: str, pattern: str) -> bool:
    return pc.match_substring_regex(pa.scalar(text, pa.string()), pattern).as_py() is True


_HOLDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "minimum": lambda value, limit: _exact(value) >= limit,
    "maximum": lambda value, limit: _exact(value) <= limit,
    "exclusiveMinimum": lambda value, limit: _exact(value) > limit,
    "exclusiveMaximum": lambda value, limit: _exact(value) < limit,
    "multipleOf": lambda value, limit: _WIDE.remainder(_exact(value), limit) == 0,
    "pattern": _matches,
    "uniqueItems": _are_unique,
    **dict.fromkeys(("minLength", "minItems", "minProperties"), lambda value, limit: len(value) >= limit),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties"), lambda value, limit: len(value) <= limit),
}


@dataclass(frozen=True)
class Ruled(Shape):
    """A value without parts that has bounds."""

    shape: Scalar | OneOf
    rules: tuple[Rule, ...]

    @property
    def arrow(self) -> pa.DataType:
        return self.shape.arrow

    def column(self, values: list[Any]) -> pa.Array:
        built = self.shape.column(values)
        if not all(rule.holds(value) for rule in self.rules for value in values if value is not None):
            raise Misfit
        return built

    def problem_with(self, value: Any, path: str) -> str | None:
        reason = self.shape.problem_with(value, path)
        return reason or problem_with_rules(self.rules, value, path)


def problem_with_rules(rules: tuple[Rule, ...], value: Any, path: str) -> str | None:
    """Return the first bound that a value of the right type breaks, as a reason; None if it breaks none."""
    broken = next((rule for rule in rules if not rule.holds(value)), None)
    return None if broken is None else f"{path}: {broken.word} of the schema is {str(broken.limit)[:60]}"
