"""The records of a peek in words: long values are cut, and those that are not text are escaped."""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.model.expectations import ExpectationCount
from tidemark.model.manifest import count_of
from tidemark.operations.peek import Peeked
from tidemark.text import readable, shortened, storable


@dataclass(frozen=True)
class RowView:
    """A row. ``before`` is the decoded data, if transforms have changed it."""

    place: str
    offset: int
    event_time: str
    data: str
    before: str | None
    targets: list[str]


@dataclass(frozen=True)
class LetterView:
    """A record that becomes a dead letter."""

    place: str
    offset: int
    reason: str
    value: str
    targets: list[str]


@dataclass(frozen=True)
class DoubtView:
    what: str
    next_step: str


@dataclass(frozen=True)
class PeekedView:
    """Each part as ``Peeked`` has it; ``counts`` and ``expectations`` are sentences."""

    counts: str
    rows: list[RowView]
    taken_away: list[RowView]
    dead_letters: list[LetterView]
    refusal: str | None
    doubts: list[DoubtView]
    expectations: list[str]


def peeked_view(peeked: Peeked, most: int) -> PeekedView:
    """Return the records with at most ``most`` characters of each value."""
    return PeekedView(
        ", ".join(_counts(peeked)),
        [_row(row, most) for row in peeked.rows],
        [_row(row, most) for row in peeked.taken_away],
        [_letter(letter, most) for letter in peeked.dead_letters],
        peeked.refusal,
        [DoubtView(str(doubt), doubt.next_step) for doubt in peeked.doubts],
        [_expected(count) for count in peeked.expectations],
    )


def _counts(peeked: Peeked) -> Iterator[str]:
    yield count_of(len(peeked.rows), "row")
    yield count_of(len(peeked.dead_letters), "dead letter")
    if peeked.taken_away:
        yield f"{len(peeked.taken_away):,} taken away by the transforms"


def _row(row: Mapping[str, Any], most: int) -> RowView:
    data, late = _data(row["data"], most), " (late)" if row["late"] else ""
    before = _data(row["before"], most) if row.get("before", row["data"]) != row["data"] else None
    return RowView(
        f"{row['topic']}-{row['partition']}",
        row["offset"],
        f"{row['event_time']:%Y-%m-%d %H:%M:%S}{late}",
        f"deleted {data}" if row.get("is_deleted") else data,
        before,
        row["targets"],
    )


def _data(data: Mapping[str, Any], most: int) -> str:
    return shortened(storable(json.dumps(data, ensure_ascii=False, separators=(",", ":"))), most)


def _letter(letter: Mapping[str, Any], most: int) -> LetterView:
    value = None if letter["value"] is None else b64decode(letter["value"])
    place = f"{letter['topic']}-{letter['partition']}"
    return LetterView(place, letter["offset"], letter["reason"], readable(value, most), letter["targets"])


def _expected(count: ExpectationCount) -> str:
    unknown = f", of these {count.unknown:,} are null or fail" if count.unknown else ""
    first = f"{unknown}: {count.places}" if count.unmet else ""
    return f"{count.name}: {count.unmet:,} of {count_of(count.rows, 'row')} do not meet it{first}"
