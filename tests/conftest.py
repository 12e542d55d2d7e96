"""What all tests need, with and without services: which of them are drawn, who runs where, and the counts in the end.

Fixtures of services are in ``tests/fixtures``; the folders whose tests need them load them, ``tests/unit`` does not.
"""

import gc
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests import draws
from tests.faults import counts
from tests.fixtures.keeper import ADDRESS, keeper_of
from tests.fixtures.modules import asks_spark, needs_airflow, needs_session
from tests.tiers import CASES, Case, marks_of

pytest.register_assert_rewrite("tests.worlds")


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job ignores SIGINT and hands that on to every process a test starts and interrupts."""
    draws.in_full = "drawn" in config.getoption("markexpr")
    settings.register_profile("patient", deadline=None)  # how long an example takes says how busy the machine is
    settings.load_profile("patient")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """``make test-faults`` draws all examples of the first, ``make test-stores`` runs the second."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker(pytest.mark.drawn)
    if "s3" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.bucket)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make test` and CI run, and begin with the folders that have the longest tests: in the end no worker
    waits for another."""
    cases = [Case(item.nodeid, frozenset(mark.name for mark in item.iter_markers())) for item in items]
    config.stash[CASES] = list(zip(cases, marks_of(cases), strict=True))
    for item, (_, names) in zip(items, config.stash[CASES], strict=True):
        for name in names:
            item.add_marker(name)
    items.sort(key=lambda item: item.path.parent.name not in ("e2e", "spark"))


def pytest_collection() -> None:
    """Nearly all that is imported stays. The collector of garbage would look through it in vain, for a quarter of the
    time that each worker takes to collect its tests."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is there now stays until the end: the collector of garbage does not have to look through it again."""
    gc.freeze()
    gc.enable()


BY_FUNCTION = ("/test_sinks.py", "/test_traces.py", "/test_lost_answers_of_tables.py", "/test_dynamodb.py")
OTHER_AIRFLOW = ("/test_night_of_faults.py", "/test_own_topic.py")
# The pages of all of them and of test_own_topic.py have a topic `orders`, and there is one broker.
SAME_NAMES = ("/test_first_run.py", "/test_from_structured_streaming.py")
ONE_BY_ONE = (
    "/test_all_sinks.py",
    "/test_changes_killed.py",
    "/test_iceberg_any_order.py",
    "/test_kills.py",
    "/test_slices_at_once.py",
    "/test_schedules.py",
    "/test_state_machine.py",
    "/test_generated_days.py",
    "/test_ways_out.py",
)


class ByModule(LoadScopeScheduling):
    """A module's tests run in one worker, and all that need Airflow in the same one; so do all with a Spark session,
    and all that ask another Spark. The night on call is as long as half of the others that need Airflow, and shares one
    of its own with the how-to of one's own topic and with other pages; canaries on the command line need none.

    The behaviours of sinks, and hundreds of kills and traces, go to the workers by function, and other long tests of
    one module one by one: a worker with all of them would be the last to end.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if "/ui/" in module:  # halves that are equally long
            return "all pages" if module.endswith(("/test_every_page.py", "/test_faults_among_many.py")) else "one page"
        if needs_airflow(nodeid):
            if "::test_secrets_are_nowhere_after_runs_on" in nodeid:
                return "canaries"
            return "night" if module.endswith(OTHER_AIRFLOW) else "airflow"
        if module.endswith(SAME_NAMES):
            return "night"
        if needs_session(nodeid):
            return "session"
        if asks_spark(nodeid):
            return "asked Spark"
        if module.endswith(ONE_BY_ONE):
            return nodeid
        return nodeid.partition("[")[0] if module.endswith(BY_FUNCTION) else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule | None:
    return ByModule(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its counts to the process that prints them."""
    gc.unfreeze()  # DuckDB's bindings list on standard error what the end of the interpreter does not collect
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["reached"] = dict(counts.REACHED)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker asks this process for the services that it shares with the others."""
    node.workerinput[ADDRESS] = keeper_of(node.config).address()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker that died has said nothing."""
    counts.REACHED.update(getattr(node, "workeroutput", {}).get("reached", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    line = counts.summary()
    if line:
        terminalreporter.write_line(line)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of this test and gives its path; without a name, a pipeline file."""

    def file(text: str | bytes, name: str = "p.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return file
