"""Every number that a test names (I10, F4 ..) stands in tests/faults/README.md, with the words of its message."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "tests" / "faults" / "README.md").read_text()
ROWS = dict(re.findall(r"^\| (I\d+) \| ([^|]+) \|", PAGE, re.MULTILINE))
CELLS = re.findall(r"^\| ((?:Iceberg )?[PRFGKNMT]\d+(?:, [^|]+)?) \|", PAGE, re.MULTILINE)
FAULTS = {number for cell in CELLS for number in re.findall(r"[PRFGKNMT]\d+", cell)}


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of every module of tests but this one."""
    for path in sorted((CHECKOUT / "tests").rglob("*.py")):
        if path != Path(__file__):
            yield str(path.relative_to(CHECKOUT)), path.read_text()


def cited(pattern: str) -> set[str]:
    return {number for _, text in sources() for number in re.findall(pattern, text)}


def test_every_invariant_that_a_test_names_is_written_down_and_the_other_way_round() -> None:
    assert cited(r"\b(I\d{1,2})\b") == set(ROWS)


def test_every_row_of_the_fault_table_that_a_test_names_is_in_it() -> None:
    named = cited(r"(?:\b|_)([PRFGKNMT][1-9]\d?)(?:\b|_)")
    assert {"F4", "G3", "G9", "K6", "P2", "T11"} <= named
    assert named <= FAULTS


def test_the_words_of_a_message_stand_beside_its_number() -> None:
    pairs = {pair for _, text in sources() for pair in re.findall(r'"(I\d+) ([a-z ]+?)[":]', text)}
    assert len(pairs) > 20
    assert [f"{number} {words}" for number, words in sorted(pairs) if words not in ROWS[number].split(", ")] == []


@pytest.mark.parametrize("number", ROWS)
def test_an_invariant_names_a_test_that_shows_it(number: str) -> None:
    [row] = re.findall(rf"^\| {number} \|.*$", PAGE, re.MULTILINE)
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`", row)
