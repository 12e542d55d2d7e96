"""Six faults among 28 pipelines, as the person on call meets them: from the first screen of the page to the way out.

Of each fault the test counts the words up to the cause and the screens to it, and does what the page says: it copies
the commands by their buttons, and runs them.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
import yaml
from click.testing import CliRunner, Result

from sandbox.bootstrap.checkout import STATE
from sandbox.services.airflow import Airflow
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from tests.ui.pictures import Picture
from tests.worlds.airflow_world import AirflowWorld, postgres_connection
from tests.worlds.arrow_stage import without_spark
from tidemark.cli import main
from tidemark.spark import engines

pytestmark = pytest.mark.timeout(900)
WINDOWS = {"wide": (1440, 900), "phone": (375, 812)}
OTHERS = 22  # pipelines that are ok
SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"
FAULTY = "clicks", "customers", "returns", "refunds", "payments", "invoices"


@dataclass
class OnCall:
    """28 pipelines that have run once, in one manifest database; six of them get a fault each."""

    airflow: Airflow
    pipelines: Path
    lake: Path
    broker: Broker
    far: Broker  # of the pipeline payments alone
    warehouse: str
    spark_jars: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, name: str, **settings: Any) -> None:
        source = {"bootstrap_servers": self._broker(name).bootstrap_servers, "topics": [name]}
        files = {"files": {"root": str(self.lake), "layout": "raw/{stream}/%Y/%m/%d/%H"}}
        decode = {"format": "json", "schema": SCHEMA}
        made = {"pipeline": name, "source": {"kafka": source}, "decode": decode, "event_time": {"field": "at"}}
        self.files[name] = {**made, "on_error": "dead_letter", "sinks": [files], **settings}
        (self.pipelines / f"{name}.yaml").write_text(yaml.safe_dump(self.files[name]))

    def _broker(self, name: str) -> Broker:
        return self.far if name == "payments" else self.broker

    def produce(self, name: str, *values: str) -> None:
        producer = self._broker(name).producer()
        for value in values:
            producer.produce(name, value, partition=0)
        assert producer.flush(30) == 0

    def environment(self) -> dict[str, str]:
        own = {
            "TIDEMARK_DB": self.airflow.env["TIDEMARK_DB"], "TIDEMARK_PIPELINES": str(self.pipelines),
            "TIDEMARK_HOME": self.airflow.env["TIDEMARK_HOME"], "TIDEMARK_SPARK_JARS": str(self.spark_jars),
            "AIRFLOW_CONN_WAREHOUSE": self.warehouse,
        }  # fmt: skip
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDEMARK_")}
        return {**inherited, **own}

    def tidemark(self, *words: str) -> Result:
        with mock.patch.object(engines, "stage_in", without_spark):
            return CliRunner().invoke(main.main, words, env=self.environment(), catch_exceptions=False)

    def ok(self, *words: str) -> str:
        done = self.tidemark(*words)
        assert done.exit_code == 0, f"{words}: exit {done.exit_code}\n{done.output}"
        return done.stdout

    def state(self, name: str) -> str:
        return str(json.loads(self.tidemark("status", name, "--json").stdout)[0]["state"])

    def in_warehouse(self, statement: str) -> None:
        with psycopg.connect(self.warehouse, autocommit=True) as connection:
            connection.execute(statement.encode())


def row(number: int) -> str:
    return json.dumps({"n": number, "at": f"2026-01-01T{number % 3:02}:00:00Z"})


@pytest.fixture
def on_call(
    airflow_world: AirflowWorld, broker: Broker, postgres: Postgres, tmp_path: Path, spark_jars: Path
) -> Iterator[OnCall]:
    airflow = airflow_world.airflow
    others = [f"events-{number:02}" for number in range(OTHERS)]
    with (
        Broker(tmp_path / "far", STATE / "jars" / "kafka") as far,
        postgres.temporary_database("warehouse") as warehouse,
    ):
        made = OnCall(airflow, airflow_world.pipelines, tmp_path / "lake", broker, far, warehouse, spark_jars)
        broker.create_topics([name for name in (*FAULTY, *others) if name != "payments"], 1, {"retention.ms": "-1"})
        far.create_topic("payments", 1, {"retention.ms": "-1"})
        airflow.create_connection("warehouse", **postgres_connection(warehouse))
        table = {"connection": "warehouse", "table": "customers", "key": ["n"], "order_by": "n", "auto_create": True}
        for name in (*FAULTY, *others):
            made.write(name, **({"sinks": [{"postgres": table}]} if name == "customers" else {}))
            made.produce(name, *map(row, range(40)))
            made.ok("run", name)
        yield made
        for name in made.files:
            (made.pipelines / f"{name}.yaml").unlink()
            (made.pipelines.parent / "_pipelines" / f"{name}.json").unlink(missing_ok=True)
        airflow.delete_connection("warehouse")
        broker.delete_topic(*[name for name in made.files if name != "payments"])


@dataclass(frozen=True)
class Fault:
    """``happen`` makes it. ``cause`` begins what the page says in bold, and ``place`` is said near it. ``mend`` is what
    a person does elsewhere, before the commands of the page."""

    happen: Callable[[OnCall], None]
    cause: str
    place: str
    mend: Callable[[OnCall], None] = lambda _: None


def lose_records(on_call: OnCall) -> None:
    from confluent_kafka import TopicPartition

    on_call.produce("clicks", *map(row, range(40, 100)))
    admin = on_call.broker.admin()
    for deleted in admin.delete_records([TopicPartition("clicks", 0, 70)]).values():
        deleted.result(30)
    on_call.tidemark("run", "clicks")


def drop_table(on_call: OnCall) -> None:
    on_call.in_warehouse("DROP TABLE customers")
    on_call.produce("customers", *map(row, range(40, 60)))
    on_call.tidemark("run", "customers")


def send_what_cannot_be_decoded(on_call: OnCall) -> None:
    on_call.write("returns", max_dead_letters="5%")
    on_call.produce("returns", *map(row, range(40, 60)), *["{not json"] * 11)
    on_call.tidemark("run", "returns")


def stop_broker(on_call: OnCall) -> None:
    on_call.far.stop()
    on_call.tidemark("run", "payments")


def kill_worker(on_call: OnCall) -> None:
    on_call.produce("refunds", *map(row, range(40, 60)))
    armed = {**on_call.environment(), "TIDEMARK_FAILPOINT": "attempt.started:kill9"}
    command = [sys.executable, "-m", "tidemark.cli", "run", "refunds"]
    done = subprocess.run(command, env=armed, capture_output=True, start_new_session=True)
    assert done.returncode == -signal.SIGKILL


def delete_file(on_call: OnCall) -> None:
    Path(on_call.ok("objects", "invoices").splitlines()[0]).unlink()
    on_call.tidemark("audit", "invoices")


FAULTS = {
    "clicks": Fault(lose_records, "retention took offsets [40, 70) of clicks-0", "clicks-0"),
    "customers": Fault(drop_table, "connection warehouse, table public.customers does not exist", "public.customers"),
    "returns": Fault(
        send_what_cannot_be_decoded, "one task has 11 records that cannot be used, and max_dead_letters is 5%",
        "returns-0 offset 60", lambda on_call: on_call.write("returns", max_dead_letters="50%"),
    ),
    "refunds": Fault(kill_worker, "the process of attempt 1 is dead", "refunds-0"),
    "payments": Fault(stop_broker, "Connection refused, so Kafka", "127.0.0.1:", lambda on_call: on_call.far.start()),
    "invoices": Fault(delete_file, "a file with 14 rows is missing", "raw/invoices/2026/01/01/00/"),
}  # fmt: skip


@contextmanager
def window(page: Any, width: str) -> Iterator[Any]:
    """The same session in another window, which may use the clipboard."""
    size = dict(zip(("width", "height"), WINDOWS[width], strict=True))
    context = page.context.browser.new_context(
        base_url=page.url.partition("/tidemark")[0],
        viewport=size,
        storage_state=page.context.storage_state(),
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(30_000)
    try:
        yield context.new_page()
    finally:
        context.close()


def opened(window: Any, address: str) -> float:
    """Open a page; returns the seconds until it is there."""
    began = time.monotonic()
    window.goto(address)
    window.get_by_role("main").wait_for()
    return time.monotonic() - began


def row_of(window: Any, name: str) -> Any:
    return window.locator("tbody").filter(has=window.get_by_role("link", name=name, exact=True))


def words_of(locator: Any) -> str:
    """The text of an element, also where it lies below the window: there the browser has not laid it out."""
    return " ".join(locator.text_content().split())


def copied_commands(window: Any, name: str) -> list[str]:
    """Copy each command of the row of a pipeline by its button; a field in it gets a reason first."""
    commands = []
    for command in row_of(window, name).locator(".command").all():
        for left in command.locator("input").all():
            command.get_by_role("button").click()
            assert command.get_by_role("button").inner_text() == "fill in first", "an unfinished command is not copied"
            left.fill("it's gone")
        command.get_by_role("button").click()
        command.get_by_role("button", name="copied").wait_for()
        commands.append(window.evaluate("navigator.clipboard.readText()"))
    return commands


def test_each_of_six_faults_is_found_and_mended_from_the_list(on_call: OnCall, page: Any, picture: Picture) -> None:
    for fault in FAULTS.values():
        fault.happen(on_call)
    on_call.airflow.parse()
    wait_until(lambda: on_call.airflow.number_of_dags() >= len(on_call.files), "the DAGs", timeout=180, interval=0.5)
    page.goto("/tidemark/")
    for width in WINDOWS:
        with window(page, width) as seen:
            print(f"{width}: the list is there after {opened(seen, '/tidemark/'):.1f} s")
            picture(seen, f"faults-{width}", full_page=True)
            assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
            text = words_of(seen.get_by_role("main"))
            assert seen.locator(".reason strong").first.bounding_box()["y"] < WINDOWS[width][1] / 2
            for name, fault in FAULTS.items():
                reason = row_of(seen, name).locator(".reason")
                cause = words_of(reason.locator("strong"))
                assert cause.startswith(fault.cause)
                assert fault.place in words_of(reason)
                before = len(text.partition(cause)[0].split())
                top = reason.bounding_box()["y"]
                print(f"{width}: {name}: {before} words before the cause, {top / WINDOWS[width][1]:.1f} screens down")
            assert seen.get_by_role("link", name="events-00").count() == 0
            seen.locator(".fold").get_by_role("link", name=f"{OTHERS} ok").click()
            seen.get_by_role("link", name="events-00").wait_for()
            for name in FAULTS:
                print(f"{width}: {name} is there after {opened(seen, f'/tidemark/pipelines/{name}'):.1f} s")
                picture(seen, f"fault-{name}-{width}")
                assert seen.locator(".notice strong").first.inner_text().startswith(FAULTS[name].cause)
                paused = seen.locator(".notice").filter(has_text="is paused, and no run starts")
                assert paused.count() == (name in ("clicks", "customers", "returns", "refunds")), name
                assert paused.locator(".command").count() == 0, "what another problem stops, a run would not do either"
    with window(page, "wide") as seen:
        opened(seen, "/tidemark/pipelines/invoices")
        seen.get_by_role("link", name="Replay what is damaged").click()
        seen.get_by_text("1 manifest, 40 offsets.").wait_for()
        for name, fault in FAULTS.items():
            fault.mend(on_call)
            ran = list[str]()
            while on_call.state(name) != "ok":
                assert len(ran) < 6, f"{name}: the commands do not lead out: {ran}"
                opened(seen, "/tidemark/")
                commands = copied_commands(seen, name)
                assert commands, f"{name}: no command leads out"
                for command in commands:
                    done = on_call.tidemark(*shlex.split(command)[1:])
                    assert done.exit_code in (0, 1), f"{command}: {done.output}"
                ran += commands
            print(f"{name}: {'; '.join(ran)}")
        opened(seen, "/tidemark/")
        seen.get_by_text("1 of 28 needs a person").wait_for()
        reason = row_of(seen, "clicks").locator(".reason").inner_text()
        assert "its DAG clicks is paused, and no run starts" in reason, "Airflow has just made the DAGs"
        assert "30 offsets" in reason, "retention has left them"
        [command] = copied_commands(seen, "clicks")
        on_call.ok(*shlex.split(command)[1:])
        opened(seen, "/tidemark/")
        seen.get_by_text("no pipeline needs a person").wait_for()
