"""What a person probably meant."""

import pytest

from tidemark.suggestion import nearest


@pytest.mark.parametrize(
    ("word", "allowed", "expected"),
    [
        ("cutt", ["cut", "gaps"], 'did you mean "cut"?'),
        ("FLIGHTS", ["Flights"], 'did you mean "Flights"?'),
        ("zzz", ["cut"], ""),
        ("cut", [], ""),
    ],
)
def test_the_nearest_of_the_allowed_words_is_named_as_it_is_written(
    word: str, allowed: list[str], expected: str
) -> None:
    assert nearest(word, allowed) == expected
