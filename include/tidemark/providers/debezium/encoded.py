"""The shapes of dates, times and decimals as Debezium encodes them in JSON.

Their methods ``column`` and ``problem_with`` agree, as ``decoders/json_shapes/shapes.py`` demands.
"""

import binascii
from base64 import b64decode
from dataclasses import dataclass
from decimal import MAX_PREC, Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.json_shapes.shapes import Day, Exact, Instant, Number, Scalar, Text
from tidemark.decoders.one_by_one import Misfit
from tidemark.providers.debezium.placeholder import UNTOLD
from tidemark.providers.debezium.times import BEYOND, is_of_another_unit, is_within_years, microseconds
from tidemark.providers.debezium.units import Decimals, Unit

_EXACT: Final = Context(prec=MAX_PREC)  # nothing is rounded
_LONGEST: Final = 64  # characters of an encoded decimal: 38 digits need 24, and a long one takes long to convert
_LONGEST_TEXT: Final = 90_000  # characters of a number that becomes text: enough for any ``numeric`` of PostgreSQL
_DECIMAL_TEXT: Final = 100
NOT_FINITE: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}  # as Jackson writes them


class Microseconds(int):
    """A number whose schema says that it is a moment."""


class Days(int):
    """A number whose schema says that it is a date."""


class NoTime(int):
    """A number whose schema says that it is neither a moment nor a date, such as a year or a duration."""


class NoNumber(str):
    """A text that is not a decimal although its schema says so. It must not be read in another encoding."""

    __slots__ = ()


def unscaled(text: str, scale: int, longest: int = _LONGEST) -> Decimal | None:
    """Return the decimal of an unscaled number: signed, highest byte first, in base64; None if the text is no such
    number.

    Java's ``BigInteger.toByteArray`` writes no more bytes than the number needs: longer bytes mean something else.
    """
    if not text or len(text) > longest or text in NOT_FINITE:
        return None
    try:
        content = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    number = int.from_bytes(content, "big", signed=True)
    if len(content) != (number if number >= 0 else ~number).bit_length() // 8 + 1:
        return None
    return _EXACT.scaleb(Decimal(number), -scale)


@dataclass(frozen=True)
class EncodedText(Text):
    """A text, or ``{scale, value}``, which becomes its number as text."""

    types = frozenset({str, dict})

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is dict and _with_scale(value, _LONGEST_TEXT) is None:
            has_scale = value.keys() == {"scale", "value"}
            return f"{path}: {'no number with a scale' if has_scale else 'expected string, found object'}"
        return super().problem_with(value, path)

    def _built(self, values: list[Any]) -> pa.Array:
        return super()._built([_text_of(value) if type(value) is dict else value for value in values])


@dataclass(frozen=True)
class AnyId(Scalar):
    """A text, or a whole number, which becomes text: some databases use numbers where others use names."""

    expected = "a string or an integer"
    types = frozenset({str, int})
    beyond = Text.beyond
    arrow = pa.string()

    def _built(self, values: list[Any]) -> pa.Array:
        return pa.array([str(value) if type(value) is int else value for value in values], self.arrow)


@dataclass(frozen=True)
class EncodedNumber(Number):
    """A float, or a text for one that is not finite, for which JSON has no number."""

    types = frozenset({*Number.types, str})
    expected = "a number, NaN, Infinity or -Infinity"

    def _built(self, values: list[Any]) -> pa.Array:
        texts = {value for value in values if type(value) is str}
        if not texts:
            return super()._built(values)
        if not texts <= NOT_FINITE.keys():
            raise Misfit
        finite = super()._built([None if type(value) is str else value for value in values])
        others = [NOT_FINITE[value] if type(value) is str else None for value in values]
        return pc.coalesce(finite, pa.array(others, self.arrow))


@dataclass(frozen=True)
class EncodedDay(Day):
    """A date as a number of days, or as a text, which may end in Z."""

    expected = "a date, or its number of days"
    types = frozenset({str, int, Days})
    beyond = f"not a date, or {BEYOND}"

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is Microseconds:
            return f"{path}: the record says that it is a moment; its column needs the type TIMESTAMP"
        return _no_time(value, path) or super().problem_with(value, path)

    def _built(self, values: list[Any]) -> pa.Array:
        texts = [value.removesuffix("Z") if type(value) is str else None for value in values]
        dates = self.parse_texts(pa.array(texts, pa.string()))
        days = [value if isinstance(value, int) else None for value in values]
        if not all(day is None or is_within_years(microseconds(day, Unit.DAYS)) for day in days):
            raise Misfit
        return pc.coalesce(dates, pa.array(days, pa.int32()).cast(self.arrow))


@dataclass(frozen=True)
class EncodedInstant(Instant):
    """A moment as a number of ``unit``, or as a text with or without an offset.

    Without ``unit`` only a schema beside the record can say what a number means.
    """

    unit: Unit | None = None
    types = frozenset({str, int, Microseconds})
    expected = "a date-time"

    @property
    def beyond(self) -> str:
        known = "not a date-time" if self.unit else "not a date-time, or a number whose unit envelope.times must say"
        return f"{known}, or {BEYOND}"

    def problem_with(self, value: Any, path: str) -> str | None:
        if type(value) is Days:
            return f"{path}: the record says that it is a date; its column needs the type DATE"
        if type(value) is int and self.unit is not None and is_of_another_unit(value, self.unit):
            return f"{path}: in {self.unit.value} it would be in January 1970; envelope.times needs its real unit"
        return _no_time(value, path) or super().problem_with(value, path)

    def _built(self, values: list[Any]) -> pa.Array:
        texts = [value if type(value) is str else None for value in values]
        moments = self.parse_texts(pa.array(texts, pa.string()))
        numbers = [self._microseconds(value) if isinstance(value, int) else None for value in values]
        return pc.coalesce(moments, pa.array(numbers, pa.int64()).cast(self.arrow))

    def _microseconds(self, value: int) -> int:
        unit = Unit.MICROSECONDS if type(value) is Microseconds else self.unit
        if unit is None or not is_within_years(moment := microseconds(value, unit)):
            raise Misfit
        if type(value) is int and is_of_another_unit(value, unit):
            raise Misfit
        return moment


def _no_time(value: Any, path: str) -> str | None:
    return f"{path}: the record says that it is no date and no moment" if type(value) is NoTime else None


@dataclass(frozen=True)
class EncodedExact(Exact):
    """A decimal: a number, ``{scale, value}``, base64 of its digits, or the number as text.

    Without ``decimals`` a text that can be both is wrong: 1234 is also the base64 of three bytes.
    """

    decimals: Decimals | None = None
    placeholders: tuple[str, ...] = ()
    expected = "a decimal"
    types = frozenset({int, Decimal, str, dict})

    @property
    def beyond(self) -> str:
        return f"does not fit DECIMAL({self.precision},{self.scale}) as it is encoded"

    def problem_with(self, value: Any, path: str) -> str | None:
        if isinstance(value, str) and value in self.placeholders:
            return f"{path}: {UNTOLD}"
        if type(value) is NoNumber:
            return f"{path}: {self.beyond}"
        if type(value) is str and self._can_be_both(value):
            return f"{path}: it can be a number, or the base64 of one; envelope.decimals must say which"
        return super().problem_with(value, path)

    def _built(self, values: list[Any]) -> pa.Array:
        return super()._built([self._number(value) for value in values])

    def _number(self, value: Any) -> Any:
        if type(value) is dict:
            number = _with_scale(value, _LONGEST)
            if number is None:
                raise Misfit
            return number
        if type(value) is not str:
            return value
        number = None
        if self.decimals is not Decimals.TEXT:
            number = unscaled(value, self.scale)
        if self.decimals is not Decimals.BASE64 and number is None:
            number = decimal_of_text(value)
        if number is None or value in self.placeholders or self._can_be_both(value):
            raise Misfit
        return number

    def _can_be_both(self, text: str) -> bool:
        is_open = self.decimals is None and not isinstance(text, NoNumber)
        return is_open and unscaled(text, self.scale) is not None and decimal_of_text(text) is not None


def number_as_text(text: str, scale: int) -> str:
    """Return the number whose digits are in base64, as text; return any other text unchanged, such as a placeholder."""
    number = unscaled(text, scale, _LONGEST_TEXT)
    return text if number is None else f"{number:f}"


def _text_of(value: dict[str, Any]) -> str:
    number = _with_scale(value, _LONGEST_TEXT)
    if number is None:
        raise Misfit
    return f"{number:f}"


def _with_scale(value: dict[str, Any], longest: int) -> Decimal | None:
    """Return the number of ``{scale, value}``; None if the value is something else."""
    scale, digits = value.get("scale"), value.get("value")
    if value.keys() != {"scale", "value"} or type(scale) is not int or type(digits) is not str or abs(scale) > 1_000:
        return None
    return unscaled(digits, scale, longest)


def decimal_of_text(text: str) -> Decimal | None:
    """Return the decimal that a text spells; None if it spells none."""
    try:
        return Decimal(text) if "_" not in text and len(text) <= _DECIMAL_TEXT and text.isascii() else None
    except ArithmeticError:
        return None
