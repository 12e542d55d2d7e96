"""``docs/the-core.md`` lists the modules that the main road executes: two runs and a replay of JSON into files."""

import os
from pathlib import Path

import pytest

from tests.road.page import COMMAND, PAGE, chapters, lines_of_functions, modules_of, rendered
from tests.worlds.world import World

TRACING = Path(__file__).parents[1] / "road" / "trace"
NOT_EXECUTED = {"airflow/dag.py", "database/queries.sql"}  # Airflow does not start these runs, and SQL is not traced


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # every call of a traced process is slower: a busy machine took five minutes
def test_the_page_lists_every_module_of_the_main_road(world: World, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    environment = {"PYTHONPATH": str(TRACING), "ROAD_TRACE": str(trace)}
    for words in (("run", world.name), ("run", world.name), ("replay", world.name, "--manifest", "1")):
        if words[0] == "run":
            world.produce(30)
        done = world.start(*words, spark=True, env=environment)
        out, err = done.communicate(timeout=600)
        assert done.returncode == 0, f"{words}: {out}\n{err}"
    executed = modules_of(trace.read_text())
    page = PAGE.read_text()
    now = rendered(page, executed)
    if os.environ.get("ROAD_PAGE") == "write":
        PAGE.write_text(now)
        print(f"{len(executed)} modules, {lines_of_functions(trace.read_text())} lines of functions: {PAGE}")
    else:
        assert page == now, f"the code of the main road has changed; write the page again: {COMMAND}"
    assert {*chapters(page)} - executed == NOT_EXECUTED, "a file of the reading order is not on the main road any more"
