"""A message that tells a person to run a command can be copied: it names the pipeline and the manifest."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.cli.main import COMMANDS, main
from tidemark.errors import TidemarkError, Unavailable, about

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
DASHBOARD = CHECKOUT / "docs" / "monitoring" / "grafana.json"
PLACEHOLDERS = re.compile(r"\b(?:PIPELINE|MANIFEST|ID)\b(?!\w)")
WANT_A_NAME = [
    name
    for texts in COMMANDS.values()
    for name in texts
    if any(
        parameter.name in ("pipeline_name", "manifest_id") and parameter.required
        for parameter in main.commands[name].load().params
    )
]
COMMAND = re.compile(rf"\btidemark ({'|'.join(WANT_A_NAME)})\b(?!-)(?! \{{| \d)")


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in a module but docstrings, expressions of f-strings as ``{}``."""
    tree = ast.parse(path.read_text())
    spared: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            assert isinstance(node.body[0], ast.Expr)
            spared.add(id(node.body[0].value))
        if isinstance(node, ast.JoinedStr):
            spared |= {id(part) for part in node.values}
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spared:
            yield node.lineno, node.value


def texts_of(value: object) -> Iterator[str]:
    """Every text in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_of(inner)


def all_messages() -> list[tuple[str, str]]:
    """Those of the package and of the dashboard, whose variable stands for a name as an expression does."""
    on_dashboard = [text.replace("$pipeline", "{}") for text in texts_of(json.loads(DASHBOARD.read_text()))]
    return [(DASHBOARD.name, text) for text in on_dashboard] + [
        (f"{path.relative_to(PACKAGE)}:{line}", text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in messages(path)
    ]


def test_the_walk_sees_messages_and_the_commands_in_them() -> None:
    texts = [text for _, text in all_messages()]
    assert sum("tidemark retry {" in text for text in texts) > 20
    assert ("grafana.json", "tidemark retry {} processes them") in all_messages()
    assert {"retry", "replay", "show", "lag"} <= set(WANT_A_NAME)
    assert COMMAND.search("then: tidemark retry")
    assert COMMAND.search("tidemark replay --manifest 3")
    assert not COMMAND.search("then: tidemark retry {pipeline}")


def test_no_message_has_a_word_in_the_place_of_a_name() -> None:
    metavars = {
        ("cli/options.py", "PIPELINE"),
        ("cli/options.py", "[PIPELINE]"),
        ("cli/inspect.py", "ID"),
        ("cli/inspect.py", "MANIFEST"),
    }
    assert [
        (where, text)
        for where, text in all_messages()
        if PLACEHOLDERS.search(text) and (where.partition(":")[0], text) not in metavars
    ] == []


def test_every_command_in_a_message_names_what_it_is_about() -> None:
    assert [(where, text) for where, text in all_messages() if COMMAND.search(text)] == []


def test_whoever_knows_the_pipeline_completes_an_error_of_a_place_that_does_not() -> None:
    with pytest.raises(Unavailable) as caught, about(pipeline="flights", manifest=3):
        raise Unavailable("no answer", next_step="tidemark replay {pipeline} --manifest {manifest}", sink="lake")
    assert caught.value.next_step == "tidemark replay flights --manifest 3"
    assert caught.value.context == {"pipeline": "flights", "manifest": 3, "sink": "lake"}


def test_what_an_error_knows_itself_stays() -> None:
    error = TidemarkError("x", next_step="tidemark retry {pipeline}", pipeline="flights")
    assert error.next_step == "tidemark retry flights"
    error.within(pipeline="orders", manifest=None)
    assert (error.next_step, error.context) == ("tidemark retry flights", {"pipeline": "flights"})
