"""Limits the records that may become dead letters, and counts them by reason.

Reasons contain positions and names from the data. A *template* is a reason without them, so that similar reasons are
counted together: ``field list[3]: null`` and ``field list[17]: null`` are both ``field list[..]: null``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil

from tidemark.errors import THEN_RETRY, TooManyDeadLetters
from tidemark.model.manifest import count_of

COUNTED_REASONS = 100  # per task or manifest; records with further reasons are counted as OTHER_REASONS
OTHER_REASONS = "other reasons"
EXPECT = "expect "  # the name of an expectation follows: it comes from the pipeline file, not from the data
SHARE_PATTERN = r"^(100(\.0+)?|\d{1,2}(\.\d+)?)%$"

_VARYING = re.compile(
    r"""
    (?P<place> ,? [ ] at [ ] (?:character|byte) [ ] \d+ )                             # of a value in its record
  | (?P<brackets> (?<!^transform) \[ (?: "(?:[^"\\]|\\.)*" | \d+ ) \] )           # list[3], map["key"]
  | (?P<quoted> "(?:[^"\\]|\\.)*" )                                                    # "a name from the data"
  | (?P<guid> \b [0-9a-fA-F]{8} (?:-[0-9a-fA-F]{4}){3} - [0-9a-fA-F]{12} \b )
  | (?P<number> (?<![\w.(,-]) (?<!RFC[ ]) (?<!\.py:) (?<!^transform\[)
        [+-]? \d+ (?: \.\d+ )? (?: [eE][+-]?\d+ )? (?! [\w(-] | [.,]\d ) )
    # a number alone: not those of DECIMAL(10,2), RFC 3339, 64-bit, address2, own.py:11
    """,
    re.VERBOSE,
)
_FIXED = {"place": "", "brackets": "[..]", "quoted": '".."', "guid": "N", "number": "N"}


@lru_cache(maxsize=10_000)
def template(reason: str) -> str:
    """Return a reason without quoted names, map keys, positions and ids. The name of an expectation is kept."""
    if reason.startswith(EXPECT):
        return reason
    return _VARYING.sub(lambda match: _FIXED[str(match.lastgroup)], reason)


_OF_DATA = re.compile(
    r"""
    (?P<type> \b [A-Za-z]\w* \( \d+ (?: ,\ ?\d+ )? \) )          # DECIMAL(10,2)
  | (?P<quoted> " .* " | (?<!\w) ' .* ' )                          # to the last quote: data may have quotes
  | (?P<number> (?<!\w) \d [\w.,:+-]* )                           # also a time; not INT64
    """,
    re.VERBOSE,
)


def without_values(message: str) -> str:
    """Return the first line of another library's message without possible data: quoted parts and numbers."""
    lines = message.strip().splitlines() or [""]
    return _OF_DATA.sub(_kind_of_data, lines[0])


def _kind_of_data(match: re.Match[str]) -> str:
    return {"type": match[0], "quoted": "'..'", "number": "N"}[str(match.lastgroup)]


@dataclass(frozen=True)
class ReasonCount:
    """The count of dead letters of one partition with one template; ``first`` and ``last`` are offsets, inclusive."""

    topic: str
    partition: int
    error_class: str
    reason: str
    count: int
    first: int
    last: int

    def plus(self, other: "ReasonCount") -> "ReasonCount":
        """Return the sum of both counts, under this one's names."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        return replace(self, count=self.count + other.count, first=first, last=last)


def reasons_together(counts: Iterable[ReasonCount]) -> tuple[ReasonCount, ...]:
    """Return the counts added up by partition, class and template, the most frequent first. After the first
    ``COUNTED_REASONS``, the others are counted as ``OTHER_REASONS`` of their partition."""
    together: dict[tuple[str, int, str, str], ReasonCount] = {}
    for count in counts:
        key = count.topic, count.partition, count.error_class, count.reason
        if key not in together and len(together) >= COUNTED_REASONS:
            key = count.topic, count.partition, "", OTHER_REASONS
            count = ReasonCount(*key, count.count, count.first, count.last)
        together[key] = together[key].plus(count) if key in together else count
    return tuple(sorted(together.values(), key=lambda count: (-count.count, count.topic, count.partition, count.first)))


def reasons_text(counts: Iterable[ReasonCount], most: int = 5) -> str:
    """Return the counts by reason over all partitions for a message: ``90 records: field id: absent (first t-0 offset
    7)``."""
    by_reason: dict[tuple[str, str], ReasonCount] = {}
    for count in counts:
        key = count.error_class, count.reason
        known = by_reason.get(key)
        by_reason[key] = count if known is None else replace(known, count=known.count + count.count)
    ordered = sorted(by_reason.values(), key=lambda count: -count.count)
    texts = [
        f"{count_of(count.count, 'record')}: {in_words(count.error_class, count.reason)} "
        f"(first {count.topic}-{count.partition} offset {count.first})"
        for count in ordered[:most]
    ]
    more = f"; {len(ordered) - most} more reasons" if len(ordered) > most else ""
    return "; ".join(texts) + more


def in_words(error_class: str, reason: str) -> str:
    """Return which part of a record is bad, and why: ``value is not JSON``. That a field is of the value goes without
    saying."""
    part = error_class.replace("_", " ")
    if reason.startswith("not ") and part:
        return f"{part} is {reason}"
    return reason if part in ("", "value") or part in reason.partition(":")[0] else f"{part}: {reason}"


@dataclass(frozen=True)
class DeadLetterLimit:
    """The limit of dead letters of one manifest: a number, or a share of the records read.

    ``text`` is the value of the pipeline file, such as 100 or 0.1%; None: no limit.
    """

    text: int | str | None = None

    def allowed(self, records: int) -> int | None:
        """Return how many dead letters are allowed among so many records; None: no limit.

        A share is rounded up: with any share above 0 %, one dead letter is always allowed.
        """
        if self.text is None:
            return None
        if isinstance(self.text, int):
            return self.text
        return ceil(Fraction(self.text.removesuffix("%")) / 100 * records)


def too_many_dead_letters(
    what: str, limit: int | str | None, reasons: Sequence[ReasonCount], **context: object
) -> TooManyDeadLetters:
    """Return the error for more dead letters than ``limit``, the pipeline's ``max_dead_letters``."""
    most = reasons[0]
    return TooManyDeadLetters(
        f"{what}, and max_dead_letters is {limit}: {reasons_text(reasons)}",
        next_step="nothing of this attempt is published. Look at them: tidemark peek {pipeline} "
        f"--topic {most.topic} --partition {most.partition} --from {most.first}; correct the schema or the producer, "
        "or raise max_dead_letters" + THEN_RETRY,
        topic=most.topic,
        partition=most.partition,
        offset=most.first,
        **context,
    )
