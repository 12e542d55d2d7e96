"""Tests of the cause that is found in a message of Spark."""

import pytest

from tidemark.spark.failures import cause_of

NO_PYTHON = 'java.io.IOException: Cannot run program "/nowhere/python": error=2, No such file or directory'
LOST = "Job aborted due to stage failure: Lost task 0.3 in stage 0.0 (TID 3) (node executor 1): "


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("one line", "one line"),
        ("first\n\tat stack", "first"),
        ("outer\n\tat a\nCaused by: a.B: middle\nCaused by: c.DException: inner\n\tat b", "c.DException: inner"),
        (f"{LOST}{NO_PYTHON}\n\tat a\nCaused by: java.io.IOException: error=2, No such file or directory", NO_PYTHON),
        ("a.BException: x\nCaused by: c.DException: y: x\nCaused by: e.FException: x", "c.DException: y: x"),
        ("words: no class: x\nCaused by: e.FException: x", "e.FException: x"),
        ("outer\nCaused by: java.lang.NullPointerException\n\tat a", "java.lang.NullPointerException"),
    ],
)
def test_the_innermost_cause_is_named_in_its_fullest_words(message: str, cause: str) -> None:
    assert cause_of(RuntimeError(message)) == cause
