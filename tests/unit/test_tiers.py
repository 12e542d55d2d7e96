"""Which tests are on the road, in CI, and left to `make test-all`."""

import ast
from pathlib import Path

import pytest

from tests.tiers import CASES, Case, long_tests, marks_of

CHECKOUT = Path(__file__).parents[2]
LONG = [name for names in long_tests().values() for name in names]


def test_every_function_that_was_collected_is_in_ci_or_named_long_or_exhaustive(request: pytest.FixtureRequest) -> None:
    tiers: dict[str, set[str]] = {}
    for case, marks in request.config.stash[CASES]:
        given = {"ci", "long"} & set(marks)
        tiers.setdefault(case.function, set()).update(given or {"exhaustive"} & case.marks)
    lonely = {function: marks - {"exhaustive"} or marks for function, marks in tiers.items()}
    assert {function: marks for function, marks in lonely.items() if len(marks) != 1} == {}


def test_ci_runs_the_road_and_each_other_function_once_without_the_long_ones() -> None:
    long_function = next(name for name in LONG if "::" in name)
    long_module = next(name for name in LONG if "::" not in name)
    marks = {
        Case("tests/unit/test_a.py::test_b[1]"): ["road", "ci"],
        Case("tests/unit/test_a.py::test_b[2]"): ["road", "ci"],
        Case("tests/unit/test_a.py::test_c", frozenset({"thorough"})): ["ci"],
        Case("tests/behaviours/test_a.py::test_b[1]"): ["road", "ci"],
        Case("tests/behaviours/test_a.py::test_b[2]", frozenset({"place"})): ["ci"],
        Case("tests/behaviours/test_a.py::test_b[3]", frozenset({"place", "thorough"})): [],
        Case("tests/providers/a/unit/test_a.py::test_b"): ["road", "ci"],
        Case("tests/providers/a/faults/test_a.py::test_b"): ["ci"],
        Case("tests/providers/a/faults/test_a.py::test_c", frozenset({"road"})): ["road", "ci"],
        Case("tests/faults/test_a.py::test_d[1]", frozenset({"thorough"})): [],
        Case("tests/faults/test_a.py::test_d[2]"): ["road", "ci"],
        Case("tests/faults/test_a.py::test_e[1]", frozenset({"exhaustive"})): [],
        Case("tests/faults/test_a.py::test_e[2]"): ["ci"],
        Case("tests/faults/test_a.py::test_e[3]"): [],
        Case("tests/faults/test_a.py::test_f", frozenset({"road"})): ["road", "ci"],
        Case("tests/faults/test_a.py::test_g", frozenset({"exhaustive"})): [],
        Case(f"{long_function}[1]", frozenset({"thorough"})): ["long"],
        Case(f"{long_function}[2]", frozenset({"thorough"})): ["long"],
        Case(f"{long_module}::test_h"): ["road", "ci"],
        Case(f"{long_module}::test_i"): ["long"],
    }
    assert marks_of(list(marks)) == list(marks.values())


def test_what_is_called_long_exists() -> None:
    functions: dict[str, set[str]] = {}
    for name in LONG:
        module, _, function = name.partition("::")
        if module not in functions:
            tree = ast.parse((CHECKOUT / module).read_text())
            functions[module] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in functions[module] or not function, name


def test_what_is_called_long_is_named_once() -> None:
    modules = {name for name in LONG if "::" not in name}
    assert len(LONG) == len(set(LONG))
    assert [name for name in LONG if name not in modules and name.partition("::")[0] in modules] == []
