"""Rows that wait in the memory of a task."""

import pyarrow as pa
import pytest

from tidemark.sinks.staging import held_rows
from tidemark.sinks.staging.held_rows import HeldRows


def test_many_small_pieces_take_more_memory_than_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rows, "TASK_BYTES", 10_000)
    held, piece = HeldRows[int](file_bytes=2**30), pa.table({"a": [1]})
    due = [target for number in range(100) for target, _ in held.add(number, piece)]
    assert len(due) > 50, "by their values all of them would fit"
    rest = [target for target, _ in held.rest()]
    assert sorted([*due, *rest]) == list(range(100)), "each once"
    assert not list(held.rest())
