"""The functions of ``tidemark`` on real services, and that ``--json`` prints what they return."""

import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest import mock

import pytest

import tidemark
from tests.worlds.arrow_stage import without_spark
from tests.worlds.world import World
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotFound
from tidemark.model.json_values import json_value
from tidemark.model.manifest import Decision
from tidemark.spark import engines

FUNCTIONS = sorted(name for name in tidemark.__all__ if name.islower() and not name.startswith("_"))


@pytest.fixture
def here(world: World) -> Iterator[World]:
    """A pipeline that the environment of this process names; orders are staged without Spark."""
    with (
        mock.patch.dict(os.environ, world.environment()),
        mock.patch.object(engines, "stage_in", without_spark),
    ):
        yield world


def as_json(answer: Any) -> Any:
    """What a program reads that was given the values as JSON."""
    return json.loads(json.dumps(answer, default=json_value))


def test_the_command_line_prints_what_the_functions_return(here: World) -> None:
    here.produce(100, bad_every=30)
    would = tidemark.plan("demo", dry_run=True)
    assert would.dry_run
    assert len(would.slices) == 3
    assert as_json(would)["slices"] == here.json("plan", "demo", "--dry-run")["slices"]
    run = tidemark.plan("demo", run_key="first")
    assert run.manifests == (1, 2, 3)
    again = here.json("plan", "demo", "--run-key", "first")
    assert (again["manifests"], again["repeated"]) == ([1, 2, 3], True)
    assert as_json(tidemark.plan("demo", run_key="first")) == again
    here.ok("retry", "demo")
    assert as_json(tidemark.manifests("demo")) == here.json("manifests", "demo")
    assert as_json(tidemark.manifests(state="done", limit=2)) == here.json(
        "manifests", "--state", "done", "--limit", "2"
    )
    assert as_json(tidemark.objects("demo")) == here.json("objects", "demo")
    assert as_json(tidemark.objects("demo", dead_letters=True)) == here.json("objects", "demo", "--dead-letters")
    assert sum(view.rows for view in tidemark.objects("demo")) == 96
    assert sum(view.rows for view in tidemark.objects("demo", dead_letters=True)) == 4
    assert tidemark.audit("demo", deep=True) == []


def test_whether_all_before_a_time_is_published_is_an_exit_status_a_table_and_a_view(here: World) -> None:
    here.produce(30)
    words = ("complete", "demo", "--until", datetime.now(UTC).isoformat())
    until = datetime.fromisoformat(words[-1])
    unread = tidemark.complete("demo", until=until)
    printed = here.here(*words, "--json")
    assert (printed.exit_code, json.loads(printed.stdout)) == (1, as_json(unread))
    assert (unread.complete, unread.run_key, unread.missing) == (False, None, ())
    assert f"no run has planned up to {words[-1]} yet" in here.here(*words).stdout
    here.ok("plan", "demo", "--until", words[-1], "--run-key", "first")
    missing = here.here(*words)
    assert missing.exit_code == 1
    assert "not everything before" in missing.stdout
    assert f"{here.topic}-0 [0, 15)" in missing.stdout
    assert "next: tidemark retry demo" in missing.stderr
    here.ok("retry", "demo")
    assert as_json(tidemark.complete("demo", until=until)) == here.json(*words)
    assert "is published (run first says so)" in here.ok(*words)


def test_looking_from_python_shows_what_commands_print(here: World) -> None:
    here.produce(100, bad_every=30)
    here.ok("run", "demo")
    here.produce(10)
    assert as_json(tidemark.lag("demo")) == here.json("lag", "demo")
    assert sum(view.lag for view in tidemark.lag("demo")) == 10
    here.ok("plan", "demo")
    with ManifestDatabase(here.dsn, "a person") as database, database.because("old"):
        database.decisions.note("demo", "accept-loss", Decision(("a line",)))
    for manifest in tidemark.manifests("demo"):
        assert as_json(tidemark.show(manifest.id)) == here.json("show", str(manifest.id))
    assert [attempt.state for attempt in tidemark.show(1).attempts] == ["published"]
    shown = here.json("show", "1", "--compare")
    assert as_json(tidemark.compare(1)) == shown["compared"]
    assert [view.verdict for view in tidemark.compare(1)] == ["in step"]
    assert as_json(tidemark.history("demo")) == here.json("history", "demo")
    assert [view.why for view in tidemark.history("demo")] == ["old"]


@pytest.mark.parametrize(("offset", "standing"), [(3, "held"), (18, "unpublished"), (999, "not planned")])
def test_where_names_the_manifest_and_the_file_that_the_command_prints(here: World, offset: int, standing: str) -> None:
    here.produce(30)
    here.ok("run", "demo")
    here.produce(10)
    here.ok("plan", "demo")
    [view] = tidemark.where(here.topic, 0, offset)
    printed = here.here("where", here.topic, "0", str(offset), "--json")
    assert as_json([view]) == json.loads(printed.stdout)
    assert view.standing == standing
    assert (view.manifest is None) == (view.range is None) == (standing == "not planned")
    if standing == "held":
        assert [located.place for located in view.sinks if located.place and Path(located.place).exists()]
    assert tidemark.where(here.topic, 0, offset, pipeline_name="demo") == [view]
    assert tidemark.where(here.topic, 7, offset) == []
    (here.pipelines / "demo.yaml").unlink()
    [without_file] = tidemark.where(here.topic, 0, offset)
    assert without_file.standing == ("unread" if standing == "held" else standing)


def test_lanes_and_timeline_have_what_is_done_and_planned(here: World) -> None:
    here.produce(30)
    here.ok("run", "demo")
    here.produce(10)
    here.ok("plan", "demo")
    lanes = tidemark.lanes("demo")
    assert [(lane.partition, lane.start, lane.end) for lane in lanes] == [(0, 0, 20), (1, 0, 20)]
    assert [[(part.state, part.start, part.end) for part in lane.parts] for lane in lanes] == [
        [("planned", 15, 20)]
    ] * 2
    timeline = tidemark.timeline("demo", by="day")
    assert (timeline.by, len(timeline.periods)) == ("day", 48)
    assert timeline.periods[-1].manifests == {"done": 1, "planned": 1}
    assert tidemark.timeline("demo").by == "hour"
    in_utc, without_zone = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)  # noqa: DTZ001
    assert tidemark.timeline("demo", until=without_zone) == tidemark.timeline("demo", until=in_utc)
    assert {count for period in tidemark.timeline("demo", until=in_utc).periods for count in period.manifests} == set()


def test_audit_returns_the_differences_that_the_command_prints(here: World) -> None:
    here.produce(30)
    here.ok("run", "demo")
    [manifest] = tidemark.manifests("demo")
    here.damage(as_json(manifest))
    differences = tidemark.audit("demo")
    assert {difference.manifest_id for difference in differences} == {1}
    printed = here.here("audit", "demo", "--json")
    assert printed.exit_code == 1
    assert as_json(differences) == json.loads(printed.stdout)


def test_replay_does_a_manifest_once_more(here: World) -> None:
    here.produce(80)
    here.ok("run", "demo", "--run-key", "first")
    here.damage(here.manifests()[0])
    [replayed] = tidemark.replay("demo", manifest_id=1)
    assert (replayed.id, replayed.attempt, replayed.published_attempt) == (1, 2, 2)
    both = tidemark.replay("demo", run_key="first")
    assert [(view.id, view.attempt, view.published_attempt) for view in both] == [(1, 3, 2), (2, 2, 1)]
    here.assert_complete()


def test_replay_leaves_out_what_an_attempt_is_at_work_on(here: World) -> None:
    here.produce(30)
    here.ok("run", "demo")
    context = here.context()
    assert context.database.attempts.start(1, "somebody") == 2
    with pytest.raises(tidemark.TidemarkError) as caught:
        tidemark.replay("demo", manifest_id=1)
    assert caught.value.next_step.endswith("tidemark replay demo --manifest 1 --take-over")
    [replayed] = tidemark.replay("demo", manifest_id=1, take_over=True)
    assert replayed.attempt == 3


def test_a_replay_is_of_a_manifest_or_of_a_run() -> None:
    for both in ({}, {"manifest_id": 1, "run_key": "x"}):
        with pytest.raises(ConfigurationError, match="needs one manifest or one run"):
            tidemark.replay("demo", **both)


def test_arguments_stand_for_the_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TIDEMARK_DB", "TIDEMARK_PIPELINES"):
        monkeypatch.delenv(variable, raising=False)
    place: dict[str, Any] = {"dsn": world.dsn, "pipelines": str(world.pipelines)}
    world.produce(10)
    until = datetime(2020, 1, 1, tzinfo=UTC)
    assert tidemark.plan("demo", until=until.replace(tzinfo=None), **place).run_key == until.isoformat()
    assert tidemark.plan("demo", **place).manifests == (1,)
    assert [view.id for view in tidemark.manifests("demo", **place)] == [1]
    with pytest.raises(ConfigurationError, match="TIDEMARK_DB is not set"):
        tidemark.manifests("demo")


def test_an_exact_reader_needs_no_pipeline_file(here: World) -> None:
    here.produce(10)
    here.ok("run", "demo")
    (here.pipelines / "demo.yaml").unlink()
    assert sum(view.rows for view in tidemark.objects("demo")) == 10
    assert len(tidemark.manifests("demo")) == 1


@pytest.mark.parametrize("command", ["manifests", "objects", "history"])
def test_an_unknown_pipeline_is_an_error_that_names_the_known_ones(here: World, command: str) -> None:
    with pytest.raises(NotFound) as caught:
        getattr(tidemark, command)("demmo")
    assert caught.value.what == 'there is no pipeline demmo; did you mean "demo"? known: demo'
    done = here.here(command, "demmo", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert caught.value.what in done.stderr


def test_the_examples_of_the_page_work(here: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    here.produce(30)
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(example.replace('"flights"', '"demo"').replace("manifest_id=12", "manifest_id=1"), {})


def test_importing_tidemark_imports_the_standard_library_only() -> None:
    program = (
        "import sys\nbefore = set(sys.modules)\nimport tidemark\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - set(sys.stdlib_module_names) == {"tidemark"}


def test_every_name_is_there_and_documented() -> None:
    assert set(tidemark.__all__) <= set(dir(tidemark))
    for name in tidemark.__all__:
        assert getattr(tidemark, name).__doc__, name
        is_value = name[0].isupper() and name not in ("ManifestState", "TidemarkError")
        assert is_dataclass(getattr(tidemark, name)) == is_value, name
    with pytest.raises(AttributeError, match="no attribute 'leg'"):
        getattr(tidemark, "leg")  # noqa: B009 -- mypy knows that it is not there


def test_no_module_of_the_package_hides_a_function_of_its_name() -> None:
    """Once ``tidemark.x`` is imported as a module, that is what ``tidemark.x`` is, and not the function."""
    names = {module.name for module in pkgutil.iter_modules(tidemark.__path__)}
    assert names & {*tidemark.__all__} == set()
    assert all(callable(getattr(tidemark, name)) for name in FUNCTIONS)


def test_every_view_that_a_function_returns_has_its_parts_among_the_names() -> None:
    waiting = [view for name in FUNCTIONS for view in dataclasses_in(get_type_hints(getattr(tidemark, name))["return"])]
    named = {getattr(tidemark, name) for name in tidemark.__all__}
    seen: set[Any] = set()
    while waiting:
        view = waiting.pop()
        if view not in seen:
            seen.add(view)
            waiting += [part for hint in get_type_hints(view).values() for part in dataclasses_in(hint)]
    assert len(seen) > 30
    assert {view.__name__ for view in seen - named} == set()


def dataclasses_in(hint: Any) -> list[Any]:
    return [hint] if is_dataclass(hint) else [part for inner in get_args(hint) for part in dataclasses_in(inner)]


def test_every_function_stands_in_the_table_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    listed = re.findall(r"^\| `(\w+)\((.*?)\)` \|", page, re.MULTILINE)
    assert sorted(name for name, _ in listed) == FUNCTIONS
    for name, words in listed:
        parameters = inspect.signature(getattr(tidemark, name)).parameters
        assert [word.rstrip("=") for word in words.split(", ")] == [*parameters][: words.count(",") + 1], name
