"""What a person probably meant."""

import pytest

from tidemark.text import nearest, with_nearest


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


@pytest.mark.parametrize(
    ("word", "listed", "expected"),
    [
        ("cutt", False, 'unknown key; did you mean "cut"?'),
        ("cutt", True, 'unknown key; did you mean "cut"? allowed: cut, gaps'),
        ("zzz", False, "unknown key"),
        ("zzz", True, "unknown key; allowed: cut, gaps"),
    ],
)
def test_a_message_ends_with_the_nearest_word_and_all_allowed_words(word: str, listed: bool, expected: str) -> None:
    assert with_nearest("unknown key", word, ["cut", "gaps"], listed=listed) == expected
