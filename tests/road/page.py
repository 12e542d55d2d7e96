"""Writes the tables of ``docs/the-core.md`` from the modules that a traced run has executed."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "include" / "tidemark"
PAGE = REPOSITORY / "docs" / "the-core.md"
COMMAND = ".venv/bin/python -m tests.road"

# | [`lifecycle/plan.py`](../include/tidemark/lifecycle/plan.py) | 381 | what to look at |
CHAPTER = re.compile(r"^(\| \[`([\w/.]+)`\]\([\w/.]+\) \| )(\d+)( \| .+ \|)$", re.MULTILINE)
OTHERS = re.compile(r"(?<=\| module \| lines \| what it does \|\n\|---\|---\|---\|\n)(?:\|.*\n)*")


def chapters(page: str) -> list[str]:
    """The files of the reading order, as paths in the package."""
    return [name for _, name, _, _ in CHAPTER.findall(page)]


def modules_of(trace: str) -> set[str]:
    return {line.partition("\t")[0] for line in trace.splitlines()}


def rendered(page: str, executed: Iterable[str]) -> str:
    """The page with today's line counts, and with a row for each executed module outside of the reading order."""
    in_order = chapters(page)
    page = CHAPTER.sub(lambda row: f"{row[1]}{lines_of(row[2])}{row[4]}", page)
    rows = [f"| `{name}` | {lines_of(name)} | {purpose_of(name)} |\n" for name in sorted({*executed} - {*in_order})]
    return OTHERS.sub(lambda _: "".join(rows), page)


def lines_of(name: str) -> int:
    return len((PACKAGE / name).read_text().splitlines())


def purpose_of(name: str) -> str:
    """The first sentence of the module's docstring, in one line."""
    text = " ".join((ast.get_docstring(ast.parse((PACKAGE / name).read_text())) or "").split())
    sentence = text.split(". ")[0].rstrip(".:")
    return sentence.replace("``", "`").replace("|", r"\|")


def lines_of_functions(trace: str) -> int:
    """The number of lines of all functions that were executed; a function inside another one counts once."""
    first_lines: dict[str, set[int]] = {}
    for line in trace.splitlines():
        name, first = line.split("\t")
        first_lines.setdefault(name, set()).add(int(first))
    total = 0
    for name, firsts in first_lines.items():
        lines: set[int] = set()
        for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if first in firsts:
                    lines |= {*range(first, (node.end_lineno or first) + 1)}
        total += len(lines)
    return total
