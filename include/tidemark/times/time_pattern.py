"""Patterns of times in text, such as ``%d/%b/%Y:%H:%M:%S %z``, for ``event_time.pattern``.

    %Y        the year, four digits          %H  the hour, 00 to 23       %S  the second, two digits
    %m        the month, two digits          %I  the hour, 01 to 12       %f  the fraction of a second, 1 to 9 digits
    %b  %B    the month in English: Jan,     %p  AM or PM, with %I        %z  Z, +0100 or +01:00
              January; any case              %M  the minute, two digits   %%  a percent sign
    %d        the day, two digits

With a dash, ``%-m %-d %-H %-I`` have one digit or two. Every other character stands for itself. Year, month and day are
required; a missing hour, minute or second is 0.
"""

import re
from dataclasses import dataclass
from functools import cached_property

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_SHORT = tuple(month[:3] for month in MONTHS)
_TWO, _ONE_OR_TWO = r"[0-9]{2}", r"[0-9]{1,2}"
_DIRECTIVES = {
    "%Y": ("year", r"[0-9]{4}"),
    "%m": ("month", _TWO),
    "%-m": ("month", _ONE_OR_TWO),
    "%b": ("month_name", f"(?i:{'|'.join(_SHORT)})"),
    "%B": ("month_name", f"(?i:{'|'.join(MONTHS)})"),
    "%d": ("day", _TWO),
    "%-d": ("day", _ONE_OR_TWO),
    "%H": ("hour", _TWO),
    "%-H": ("hour", _ONE_OR_TWO),
    "%I": ("hour_of_12", _TWO),
    "%-I": ("hour_of_12", _ONE_OR_TWO),
    "%p": ("half", "(?i:AM|PM)"),
    "%M": ("minute", _TWO),
    "%S": ("second", _TWO),
    "%f": ("fraction", r"[0-9]{1,9}"),
    "%z": ("zone", r"[Zz]|[+-][0-9]{2}:?[0-9]{2}"),
}
_PARTS = re.compile(r"%-?.?|[^%]+", re.DOTALL)
_NEEDS = {"minute": "hour", "second": "minute", "fraction": "second", "half": "hour_of_12", "hour_of_12": "half"}


@dataclass(frozen=True)
class TimePattern:
    """A pattern; raises ``ValueError`` with the reason if it cannot be used."""

    text: str

    def __post_init__(self) -> None:
        _ = self.regex

    @cached_property
    def regex(self) -> str:
        """Return the pattern as a regular expression of RE2 for a whole text, with a named group for each part of the
        time."""
        pieces, names = [], set()
        for part in _PARTS.findall(self.text):
            if not part.startswith("%"):
                pieces.append(re.escape(part))
            elif part == "%%":
                pieces.append("%")
            elif part not in _DIRECTIVES:
                raise ValueError(f"has {part}, which is not known; known: {' '.join(_DIRECTIVES)} %%")
            else:
                name, digits = _DIRECTIVES[part]
                if name in names:
                    raise ValueError(f"has the {name.replace('_', ' ')} twice")
                names.add(name)
                pieces.append(f"(?P<{name}>{digits})")
        _refuse_incomplete(names)
        return f"^{''.join(pieces)}$"

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of the groups in ``regex``."""
        return frozenset(re.findall(r"\(\?P<(\w+)>", self.regex))


def _refuse_incomplete(names: set[str]) -> None:
    if {"month", "month_name"} <= names or {"hour", "hour_of_12"} <= names:
        raise ValueError("has a month or an hour in two ways")
    if not {"year", "day"} <= names or not names & {"month", "month_name"}:
        raise ValueError("must have year, month and day, such as %Y-%m-%d")
    for name, needed in _NEEDS.items():
        if name in names and needed not in names and not (needed == "hour" and "hour_of_12" in names):
            raise ValueError(f"has the {name.replace('_', ' ')} without the {needed.replace('_', ' ')}")
