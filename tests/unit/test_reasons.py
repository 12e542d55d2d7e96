"""Reasons without what varies, their counts, and the limit on the number of dead letters."""

import pytest

from tidemark.model.reasons import (
    COUNTED_REASONS,
    OTHER_REASONS,
    DeadLetterLimit,
    ReasonCount,
    in_words,
    reasons_text,
    reasons_together,
    template,
    without_values,
)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("field list[3]: null", "field list[..]: null"),
        ('field map["a\\"]b"][12].x: null', "field map[..][..].x: null"),
        ("not UTF-8 at byte 120", "not UTF-8"),
        ("field a: does not fit DECIMAL(10,2)", "field a: does not fit DECIMAL(10,2)"),
        ("field x: outside the range of a 64-bit integer", "field x: outside the range of a 64-bit integer"),
        ("field address2: not an RFC 3339 date-time", "field address2: not an RFC 3339 date-time"),
        ('record: the schema has no property "zzz"', 'record: the schema has no property ".."'),
        ("the value -1.5e3, not 3.", "the value N, not N."),
        ("transform[0].python: code/own.py:11: ValueError: 17 in list[3]",
         "transform[0].python: code/own.py:11: ValueError: N in list[..]"),
        ("schema 0f8fad5b-d9cb-469f-a165-70867728950e is not known", "schema N is not known"),
        ("event time: field at is not within 1970-01-01 and 2200-01-01",
         "event time: field at is not within 1970-01-01 and 2200-01-01"),
    ],
)  # fmt: skip
def test_a_template_has_no_positions_names_and_ids_of_the_data(reason: str, expected: str) -> None:
    assert template(reason) == expected
    assert template(expected) == expected, "a template is its own template"


def count(reason: str, *, number: int = 1, partition: int = 0, first: int = 0, last: int = 0) -> ReasonCount:
    return ReasonCount("t", partition, "value", reason, number, first, last)


def test_counts_of_a_reason_are_added_up_by_partition() -> None:
    parts = [count("a", first=7, last=9), count("b"), count("a", number=3, first=3, last=8), count("a", partition=1)]
    assert reasons_together(parts) == (
        count("a", number=4, first=3, last=9), count("b"), count("a", partition=1)
    )  # fmt: skip
    assert (
        reasons_text(reasons_together(parts)) == "5 records: a (first t-0 offset 3); 1 record: b (first t-0 offset 0)"
    )


@pytest.mark.parametrize(
    ("error_class", "reason", "words"),
    [
        ("value", "not JSON: Expecting value", "value is not JSON: Expecting value"),
        ("value", "field id: absent", "field id: absent"),
        ("key", "not UTF-8", "key is not UTF-8"),
        ("key", "field id: absent", "key: field id: absent"),
        ("event_time", "event time: field at is null", "event time: field at is null"),
        ("transform", "transform[0].python: own.py:11: ValueError", "transform[0].python: own.py:11: ValueError"),
        ("", OTHER_REASONS, OTHER_REASONS),
    ],
)
def test_a_reason_names_the_part_of_the_record_in_words(error_class: str, reason: str, words: str) -> None:
    assert in_words(error_class, reason) == words


def test_however_many_reasons_there_are_so_many_are_kept_and_all_records_are_counted() -> None:
    together = reasons_together(count(f"reason {'x' * number}") for number in range(3 * COUNTED_REASONS))
    assert len(together) == COUNTED_REASONS + 1
    assert sum(part.count for part in together) == 3 * COUNTED_REASONS
    assert (together[0].reason, together[0].count) == (OTHER_REASONS, 2 * COUNTED_REASONS)
    assert reasons_text(together).endswith(f"; {COUNTED_REASONS - 4} more reasons")
    assert sum(part.count for part in reasons_together([*together, *together])) == 6 * COUNTED_REASONS


@pytest.mark.parametrize(
    ("text", "records", "allowed"),
    [(None, 10, None), (0, 10, 0), (12, 10, 12), ("1%", 1, 1), ("1%", 100, 1), ("1%", 101, 2), ("0.1%", 29_000, 29),
     ("100%", 7, 7), ("0%", 10**12, 0)],
)  # fmt: skip
def test_a_share_is_of_the_records_read_and_rounded_up(text: int | str | None, records: int, allowed: int) -> None:
    assert DeadLetterLimit(text).allowed(records) == allowed


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Conversion Error: Could not convert string 'ada' to INT64",
         "Conversion Error: Could not convert string '..' to INT64"),
        ("Out of Range Error: Overflow in multiplication of INT32 (70000 * 3)!",
         "Out of Range Error: Overflow in multiplication of INT32 (N * N)!"),
        ("Type INT64 with value -300 can't be cast because it is out of range for INT8",
         "Type INT64 with value -N can't be cast because it is out of range for INT8"),
        ('Casting value "1234.5" to type DECIMAL(4,2) failed', "Casting value '..' to type DECIMAL(4,2) failed"),
        ("can't convert 'it's ada' b'", "can't convert '..'"),
        ("Integer value 5000000000 not in range: -128 to 127", "Integer value N not in range: -N to N"),
        ("timestamp out of range: 2024-03-01T10:00:00", "timestamp out of range: N"),
        ("bad\nada", "bad"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_message_of_a_library_has_no_quoted_text_and_no_number(message: str, expected: str) -> None:
    assert without_values(message) == expected
