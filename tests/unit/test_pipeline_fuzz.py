"""Whatever a person types: it loads, or every problem is one line that they understand."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml as pyyaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.unit.pipeline_text import GOOD
from tidemark.config import yaml
from tidemark.errors import ConfigurationError
from tidemark.pipeline.loader import load

REPOSITORY = Path(__file__).parents[2]

Write = Callable[..., Path]


TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
TRAPS = [
    "-",
    ":",
    "[",
    "]",
    "{",
    "}",
    "${A}",
    "${",
    "&a",
    "*a",
    "!!",
    "?",
    "|",
    ">",
    "'",
    '"',
    "\\\\ud800",
    "1e999",
    ".inf",
    "~",
    "null",
    "<<:",
    "%YAML",
    "@",
    "`",
    "#",
]
PIECES = st.lists(st.sampled_from([*GOOD.split(), *TRAPS, "\n", "\n  ", "\n    ", "\t", "9" * 5000]), max_size=60).map(
    " ".join
)
MUTATED = st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.one_of(TEXT, PIECES)).map(
    lambda cut: GOOD[: cut[0]] + cut[2] + GOOD[cut[0] + cut[1] :]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
JARGON = ("Input should", "Extra inputs", "type=", "pydantic", "Field required", "Traceback")


def loads_or_explains(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
    try:
        load(path, {"A": "a"})
        return
    except ConfigurationError as problem:
        message = str(problem)
    *lines, where, last = message.splitlines()
    assert where == "[error=configuration]"
    assert last == "next: correct it and check again with: tidemark validate"
    assert all(line.startswith(f"{path}:") for line in lines)
    assert not any(word in message for word in JARGON if word not in text)
    assert "something else" not in message


KEYS = [
    "pipeline",
    "source",
    "kafka",
    "connection",
    "topics",
    "slice",
    "max_records",
    "decode",
    "format",
    "schema",
    "event_time",
    "field",
    "sinks",
    "root",
    "spark",
    "schedule",
    "catchup",
    "start_date",
]
FUZZ = settings(max_examples=draws(150), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.one_of(MUTATED, PIECES, TEXT))
def test_any_text_loads_or_is_explained(tmp_path: Path, text: str) -> None:
    loads_or_explains(tmp_path / "any.yaml", text)


@FUZZ
@given(st.sampled_from(KEYS), VALUES)
def test_any_value_at_any_key_loads_or_is_explained(tmp_path: Path, key: str, value: object) -> None:
    written = json.dumps(value)
    text = re.sub(
        rf"^( *){key}:.*\n(?:\1 +.*\n)*", lambda match: f"{match[1]}{key}: {written}\n", GOOD, flags=re.MULTILINE
    )
    loads_or_explains(tmp_path / "any.yaml", text if text != GOOD else f"{GOOD}{key}: {written}\n")


@settings(deadline=None, max_examples=draws(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MUTATED)
def test_both_parsers_read_the_same_where_neither_refuses(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    documents = []
    for quick in (True, False):
        monkeypatch.setattr("yaml.__with_libyaml__", quick)
        try:
            documents.append(yaml.read(text, {}))
        except yaml.NotYaml:
            return
    assert documents[0] == documents[1]


def test_the_quick_parser_is_there_and_tells_what_the_other_tells() -> None:
    assert pyyaml.__with_libyaml__
    with pytest.raises(yaml.NotYaml, match="nested too deeply"):
        yaml.read("[" * 500_000, {})
    with pytest.raises(yaml.NotYaml, match="indented with a tab"):
        yaml.read("a:\n\tb: 1\n", {})
    assert yaml.read("a:\t1\t\nb: [1,\n\t2]\n", {}).value == {"a": 1, "b": [1, 2]}
