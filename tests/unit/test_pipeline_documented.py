"""What the repository, the documentation and editors say of pipeline files agrees with what loads."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sandbox.bootstrap.reference import PAGES, keys_of, written
from tests.unit.pipeline_text import changed
from tidemark.kinds import OUR_PROVIDERS
from tidemark.pipeline.loader import find, load, pipeline_files
from tidemark.pipeline.settings import Pipeline, json_schema

REPOSITORY = Path(__file__).parents[2]

Write = Callable[..., Path]


def test_the_demo_pipeline_says_what_make_run_relies_on() -> None:
    pipeline = find(REPOSITORY / "include/pipelines", "flights", {"TIDEMARK_LAKE": "/lake"})
    assert pipeline.source.slice.max_records == 120_000
    assert pipeline.source.connection == "kafka_default"
    assert pipeline.sinks[0].root == "/lake"
    assert pipeline.event_time.on_invalid == "dead_letter"


def test_every_file_of_the_repository_is_valid_for_editors_too() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for file in pipeline_files(REPOSITORY / "include/pipelines"):
        assert list(validator.iter_errors(yaml.safe_load(file.read_text()))) == []
    wrong = yaml.safe_load(
        changed(("max_records: 1000", "max_bytes: 1 gig"), ("    topics:", "    cutt: x\n    topics:"))
    )
    assert len(list(validator.iter_errors(wrong))) == 2


@pytest.mark.parametrize(("page", "name"), [("providers/rabbitmq", "streams"), ("change-stream", "order_changes")])
def test_a_page_shows_the_pipeline_of_its_example(page: str, name: str) -> None:
    example = (REPOSITORY / f"include/pipelines/examples/{name}.yaml").read_text()
    shown = (REPOSITORY / f"docs/{page}.md").read_text()
    assert f"```yaml\n{example[example.index('pipeline:') :]}```" in shown


def test_the_promise_of_a_table_of_current_rows_is_told_once_and_other_pages_lead_to_it() -> None:
    names = ("providers/iceberg", "providers/delta", "change-stream")
    told, *others = [(REPOSITORY / f"docs/{name}.md").read_text() for name in names]
    assert [page.count("Per key the newest version") for page in (told, *others)] == [1, 0, 0]
    assert all("iceberg.md#iceberg-with-a-key-the-newest-row-of-each-key" in page for page in others)


def test_every_example_is_valid_here_and_for_editors() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    files = pipeline_files(REPOSITORY / "include/pipelines/examples")
    for file in files:
        assert list(validator.iter_errors(yaml.safe_load(file.read_text()))) == [], file
    assert len({load(file, {}).name for file in files}) == len(files) >= 4


def may_be_a_value(node: dict[str, Any]) -> bool:
    """Whether a key that has keys below it may be a word or a time instead."""
    return any("enum" in part or "const" in part for part in node.get("anyOf", []))


def reference() -> str:
    """The keys of the core, then those of each provider."""
    pages = [REPOSITORY / "docs/configuration.md", *sorted((REPOSITORY / "docs/providers").glob("*.md"))]
    return "\n".join(page.read_text() for page in pages)


@pytest.mark.parametrize("name", OUR_PROVIDERS)
def test_a_provider_has_a_page_with_its_extra_and_an_example_and_tests_of_its_own(name: str) -> None:
    page = (REPOSITORY / f"docs/providers/{name}.md").read_text()
    assert f'pip install "tidemark[{name}]"' in page
    [example] = re.findall(r"An example:\n\[.*\]\(\.\./\.\./(include/pipelines/examples/.*)\)\.", page)
    assert (REPOSITORY / example).is_file()
    assert list((REPOSITORY / f"tests/providers/{name}").rglob("test_*.py"))


def test_every_key_of_a_pipeline_file_is_documented_with_its_default_and_no_other_is() -> None:
    schema = json_schema()
    keys = keys_of(schema, schema, "")
    rows = re.findall(r"^\| `([^`]+)` \| [^|]+ \| ([^|]+) \|", reference(), re.MULTILINE)
    documented = {key: default.strip() for key, default in rows}
    sections = {
        key for key in keys if any(other.startswith(f"{key}.") for other in keys) and not may_be_a_value(keys[key])
    }
    assert sorted(documented) == sorted(keys.keys() - sections)
    for key, default in documented.items():
        if default == "required":
            assert "default" not in keys[key], key
        elif default != "as `on_error`":
            assert json.dumps(keys[key]["default"]).strip('"') == default.strip("`").strip('"'), key


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_tables_of_keys_are_those_of_the_settings(path: Path) -> None:
    page = path.read_text()
    assert page == written(page, json_schema(links=True)), "make reference writes them"


def test_editors_get_the_words_of_the_page_without_links() -> None:
    assert ".md#" in json.dumps(json_schema(links=True))
    assert ".md#" not in json.dumps(json_schema())


def test_every_example_of_the_documentation_loads(write: Write) -> None:
    first, *others = re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL)
    assert load(write(first), {}).name == "flights"
    for part in others:
        both = {**yaml.safe_load(first), **yaml.safe_load(part)}
        if "decode" not in yaml.safe_load(part) or "sinks" not in yaml.safe_load(part):
            columns = "id BIGINT, time_hour TIMESTAMP, created_at BIGINT"
            both["decode"] = {"format": "json", "schema": columns, "headers": True}
        elif "event_time" not in yaml.safe_load(part):
            del both["event_time"]
        assert isinstance(load(write(json.dumps(both, default=datetime.isoformat)), {}), Pipeline)
    assert len(others) >= 5
