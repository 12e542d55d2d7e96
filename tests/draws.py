"""How many examples the tests of hypothesis draw."""

in_full = False  # set by tests/conftest.py before it imports any test


def draws(number: int) -> int:
    """``number`` in `make test-faults`, a quarter in the other targets: each example takes the same way once more."""
    return number if in_full else number // 4
