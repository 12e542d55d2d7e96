"""Which tests `make test` and CI run: the marks ``road``, ``ci`` and ``long``, which tests/conftest.py gives.

`make test` runs the road: unit tests, behaviours, and the first test of each other module of the core with its first
parameters; of a provider only what is marked ``road``. `make test-ci` also runs behaviours of sinks in other places,
and every other function with its first parameters, except what tests/long.txt names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

BEHAVIOURS = "behaviours"
ALL_ROAD = ("unit", BEHAVIOURS)  # folders; in them only marked tests are not on the road
LONG = Path(__file__).with_name("long.txt")


@dataclass(frozen=True, slots=True)
class Case:
    """One function with one set of parameters."""

    nodeid: str
    marks: frozenset[str] = frozenset()

    @property
    def function(self) -> str:
        return self.nodeid.partition("[")[0]

    @property
    def module(self) -> str:
        return self.nodeid.partition("::")[0]

    @property
    def folder(self) -> str:
        return self.module.split("/")[-2]

    @property
    def is_of_a_provider(self) -> bool:
        return self.module.startswith("tests/providers/")


CASES = pytest.StashKey[list[tuple[Case, list[str]]]]()  # of all tests that were collected, with what they were given


def long_tests() -> dict[str, list[str]]:
    """Return the functions and modules that CI leaves out, as pytest names them, by the reason."""
    reasons: dict[str, list[str]] = {}
    for block in LONG.read_text().split("\n# ")[1:]:
        reason, *names = block.split("\n")
        reasons[reason] = [f"tests/{name}" for name in names if name]
    return reasons


def marks_of(cases: Sequence[Case]) -> list[list[str]]:
    """Return for each case which of the marks ``road``, ``ci`` and ``long`` it gets. Each function gets ``ci`` or
    ``long`` on a case, unless all its cases are exhaustive.
    """
    road = set(_road(cases))
    seen = {case.function for case in road}
    long = {name for names in long_tests().values() for name in names}
    marks: list[list[str]] = []
    for case in cases:
        if case in road:
            marks.append(["road", "ci"])
        elif case.folder == BEHAVIOURS and case.marks.isdisjoint(("exhaustive", "thorough")):
            marks.append(["ci"])
        elif "exhaustive" in case.marks or case.function in seen:
            marks.append([])
        elif case.module in long or case.function in long:
            marks.append(["long"])
        else:
            seen.add(case.function)
            marks.append(["ci"])
    return marks


def _road(cases: Sequence[Case]) -> Iterator[Case]:
    begun = set()
    for case in cases:
        if "road" in case.marks:
            yield case
        elif case.marks.isdisjoint(("exhaustive", "thorough")):
            if case.folder in ALL_ROAD:
                if "place" not in case.marks:
                    yield case
            elif case.module not in begun and not case.is_of_a_provider:
                begun.add(case.module)
                yield case
