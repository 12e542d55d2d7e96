"""Uploads in parts to a bucket: their notes, their parts, and the numbers of their files."""

from itertools import pairwise

import pytest

from tidemark.paths import ObjectName, first_part
from tidemark.storage.s3.uploads import MOST_PARTS, PART_BYTES, Note, part_bytes

MOST_FILES = 1_000_000  # of one task for a sink: the most that ``max_objects`` allows


@pytest.mark.parametrize("size", [1, PART_BYTES, MOST_PARTS * PART_BYTES, MOST_PARTS * PART_BYTES + 1, 2**40])
def test_a_file_of_any_size_has_few_enough_parts(size: int) -> None:
    part = part_bytes(size)
    assert part >= PART_BYTES
    assert -(-size // part) <= MOST_PARTS
    assert part == PART_BYTES or size > MOST_PARTS * PART_BYTES


def test_a_note_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    note = Note("raw/a.parquet", "id", ({"PartNumber": 1, "ETag": '"e"'},))
    assert Note.parse(note.content()) == note
    for other in (None, b"", b"\xff", b"[]", b"1", b"{}", b'{"key": "a", "upload_id": "b"}'):
        assert Note.parse(other) is None


def test_no_two_tasks_or_sinks_and_no_receipt_give_a_file_the_same_number() -> None:
    firsts = [first_part(sink, task) for sink in (0, 1, 2) for task in (0, 1, 9, 9_999, 99_999)]
    assert firsts == sorted(firsts)
    edges = [0, *firsts]
    assert all(after - before >= MOST_FILES for before, after in pairwise(edges))
    for part in firsts:
        name = ObjectName(1, 1, (0, 0, 9), part, "parquet")
        assert ObjectName.parse(f"raw/{name}") == name
