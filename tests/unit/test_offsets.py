from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.offsets import Range, TopicPartition, split

PLACE = TopicPartition("t", "id", 0)


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 3)])
def test_an_empty_or_backward_range_cannot_be_made(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        Range(PLACE, start, end)


@given(st.integers(0, 10**12), st.integers(1, 10**9), st.integers(1, 50))
def test_pieces_of_a_range_join_to_the_range(start: int, span: int, parts: int) -> None:
    pieces = [piece for part in split([Range(PLACE, start, start + span)], parts) for piece in part]
    assert (pieces[0].start, pieces[-1].end) == (start, start + span)
    assert all(a.end == b.start for a, b in pairwise(pieces))
    assert max(piece.span for piece in pieces) - min(piece.span for piece in pieces) <= 1
