"""How Spark's processes end, and the words for it."""

import pytest

from tidemark.spark.ended import advice, describe_end


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-9, "Spark was killed by signal 9 (SIGKILL), often because the machine had no memory left"),
        (137, "Spark was killed by signal 9 (SIGKILL), often because the machine had no memory left"),
        (-15, "Spark was killed by signal 15 (SIGTERM)"),
        (143, "Spark was killed by signal 15 (SIGTERM)"),
        (-11, "Spark was killed by signal 11 (SIGSEGV)"),
        (52, "Spark ended with exit status 52: it had no memory left"),
        (1, "Spark ended with exit status 1"),
        (0, "Spark ended with exit status 0"),
        (255, "Spark ended with exit status 255"),
    ],
)
def test_an_end_is_named_by_its_signal_or_its_exit_status(status: int, words: str) -> None:
    assert describe_end(status) == words


@pytest.mark.parametrize(("status", "of_memory"), [(-9, True), (137, True), (52, True), (-15, False), (1, False)])
def test_only_an_end_that_memory_may_have_caused_sends_a_person_to_look_at_it(status: int, of_memory: bool) -> None:
    assert ("dmesg" in advice(status)) is of_memory
