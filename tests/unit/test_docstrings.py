"""Docstrings begin with a verb or a noun, and name the thing at their end: then a reader needs them once."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "include/tidemark"
BEGINNING = re.compile(r"(What|Of|Whether|Where|How|Why|Which|When|Who)\b")
END = re.compile(r"\b(has it|has them|is none)\.?$")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Each docstring of a module, with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield node.body[0].lineno, docstring.strip()


@cache
def all_docstrings() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(PACKAGE)}:{line}", docstring)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, docstring in docstrings(path.read_text())
    ]


def test_the_walk_sees_docstrings_of_modules_classes_and_functions() -> None:
    text = '"""Module."""\nclass A:\n    """Class."""\n    def b(self):\n        """Method."""\n'
    assert [docstring for _, docstring in docstrings(text)] == ["Module.", "Class.", "Method."]
    assert len(all_docstrings()) > 3000


def test_no_docstring_begins_with_a_question() -> None:
    assert [(where, text) for where, text in all_docstrings() if BEGINNING.match(text)] == []


def test_no_docstring_ends_without_the_thing() -> None:
    assert [(where, text) for where, text in all_docstrings() if END.search(text)] == []
