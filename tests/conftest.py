"""Real services for every test that wants them: started once per session, when first asked for, on free ports."""

import gc
import json
import logging
import re
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from xdist.scheduler import LoadScopeScheduling

pytest.register_assert_rewrite(
    "tests.worlds.world", "tests.worlds.table_world", "tests.worlds.s3_world", "tests.worlds.airflow_world"
)

from sandbox.bootstrap.checkout import STATE
from sandbox.services.airflow import Airflow
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres, remove_home
from sandbox.services.s3 import S3
from tests.faults import counts
from tests.worlds.airflow_world import AirflowWorld
from tests.worlds.s3_world import BUCKET, S3World
from tests.worlds.secured_world import USER, Secured, canary
from tests.worlds.table_world import TableWorld
from tests.worlds.token_endpoint import TokenEndpoint
from tests.worlds.world import World
from tidemark.manifest.migrate import migrate
from tidemark.spark.session import open_session

TEMPLATE = "tidemark_template"
GUARANTEES = Path(__file__).parents[1] / "docs" / "guarantees.md"
NAMED = frozenset(re.findall(r"`(tests/[\w/]+\.py::test_\w+)`", GUARANTEES.read_text()))
TopicFactory = Callable[..., str]


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT and hands that on to every process a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """``make test-faults`` runs these folders, what the guarantees name, and what is exhaustive anywhere."""
    if item.path.parent.name in ("faults", "characterization") or item.nodeid.partition("[")[0] in NAMED:
        item.add_marker(pytest.mark.fault)


class ByModule(LoadScopeScheduling):
    """A module's tests run in one worker, and all that need Airflow in the same one: two of it fill two cores."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return "airflow" if "airflow" in module or "/e2e/" in module else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule:
    return ByModule(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its figures to the process that prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["reached"] = dict(counts.REACHED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker that died has said nothing."""
    counts.REACHED.update(getattr(node, "workeroutput", {}).get("reached", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    line = counts.summary()
    if line:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of this session's services; `make run` and `make up` have another."""
    state = tmp_path_factory.mktemp("services")
    yield state
    remove_home(state)


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The folder with Spark's Kafka connector, for TIDEMARK_SPARK_JARS."""
    return STATE / "jars" / "spark"


@pytest.fixture(scope="module")
def session(spark_jars: Path) -> Iterator[SparkSession]:
    """Spark with two threads. Mark the module to ignore unclosed sockets: PySpark 4.0 leaves those of collect()."""
    opened = open_session("local[2]", spark_jars)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # at exit it would talk to a stream that pytest has closed
    yield opened
    opened.stop()
    gc.collect()  # its sockets, while the module's filter of warnings holds


@pytest.fixture(scope="session")
def postgres(services: Path) -> Iterator[Postgres]:
    """A PostgreSQL server; databases come from the fixture `database`."""
    with Postgres(services) as server:
        yield server


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """The name of a migrated database that nobody is connected to: copying it takes 50 ms, migrating 200."""
    migrate(postgres.create_database(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database(postgres: Postgres, template: str) -> Iterator[str]:
    """The DSN of a fresh, migrated manifest database of this test alone."""
    with postgres.temporary_database("test", template) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def broker(services: Path) -> Iterator[Broker]:
    """A Kafka broker; topics come from the fixture `topic`."""
    with Broker(services, STATE / "jars" / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def secured(services: Path) -> Iterator[Secured]:
    """A secured broker with its users, certificates and token endpoint."""
    secret = canary("secret")
    with TokenEndpoint(services, USER, secret) as endpoint:
        found = Secured.open(services / "secured", STATE / "jars" / "kafka", endpoint, secret)
        with found.broker:
            yield found


@pytest.fixture
def make_secured_world(
    tmp_path: Path, database: str, secured: Secured, spark_jars: Path
) -> Iterator[Callable[..., World]]:
    """Makes a pipeline that reads from the secured broker: ``make_secured_world("mTLS", kafka={..})``."""
    made: list[World] = []

    def make(way: str, **settings: Any) -> World:
        made.append(secured.world(tmp_path / f"secured{len(made)}", database, spark_jars, way, **settings))
        return made[-1]

    yield make
    for world in made:
        world.stop()


@pytest.fixture
def topic(broker: Broker) -> Iterator[TopicFactory]:
    """Makes topics with names of this test alone: ``topic(partitions=2, config={..}, prefix="orders")``."""
    made: list[str] = []

    def make(partitions: int = 1, config: dict[str, str] | None = None, prefix: str = "t") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        # Tests write records of any date; the default retention would drop old ones within seconds.
        broker.create_topic(name, partitions, {"retention.ms": "-1", **(config or {})})
        made.append(name)
        return name

    yield make
    for name in made:
        broker.delete_topic(name)


@pytest.fixture(scope="session")
def airflow_home(services: Path) -> Path:
    """TIDEMARK_HOME of the tests that go through Airflow; its folder `pipelines` is TIDEMARK_PIPELINES."""
    home = services / "airflow-lakes"
    (home / "pipelines").mkdir(parents=True)
    return home


@pytest.fixture(scope="module")  # not the session: it takes a tenth of a core even when nobody asks it anything
def airflow(
    services: Path, postgres: Postgres, broker: Broker, template: str, airflow_home: Path, spark_jars: Path
) -> Iterator[Airflow]:
    """A whole Airflow on the checkout's DAG folder; put pipeline files into `airflow_home / "pipelines"`."""
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap_servers}}
    with (
        postgres.temporary_database("tidemark", template) as manifests,
        postgres.temporary_database("airflow") as metadata,
    ):
        env = {
            "TIDEMARK_DB": manifests,
            "TIDEMARK_HOME": str(airflow_home),
            "TIDEMARK_PIPELINES": str(airflow_home / "pipelines"),
            "TIDEMARK_SPARK_JARS": str(spark_jars),
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(kafka),
            # A dead supervisor or scheduler is noticed within 10 s instead of 300.
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
        }
        with Airflow(services, metadata, env, parse_interval=3) as server:
            server.create_connection("spark_default", "spark", "local[2]")
            yield server


@pytest.fixture(scope="session")
def s3(services: Path) -> Iterator[S3]:
    """An emulator of the S3 API with the bucket of the lakes; each test has a prefix of its own."""
    with S3(services) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def make_s3_world(
    tmp_path: Path, database: str, s3: S3, broker: Broker, spark_jars: Path
) -> Iterator[Callable[..., S3World]]:
    """Makes a pipeline whose lake is in the bucket; ``endpoint_url`` puts a proxy before it."""
    made: list[S3World] = []

    def make(**settings: Any) -> S3World:
        made.append(S3World(tmp_path / f"bucket{len(made)}", database, broker, spark_jars, s3=s3, **settings))
        return made[-1]

    yield make
    for world in made:
        world.stop()


@pytest.fixture
def make_table_world(
    tmp_path: Path, database: str, postgres: Postgres, broker: Broker, spark_jars: Path
) -> Iterator[Callable[..., TableWorld]]:
    """Makes a pipeline that writes a table, in the manifest database (``same``) or in a database of its own."""
    made: list[TableWorld] = []
    with postgres.temporary_database("warehouse") as warehouse:

        def make(*, same: bool = False, **settings: Any) -> TableWorld:
            folder, targets = tmp_path / f"tables{len(made)}", {"warehouse": database if same else warehouse}
            made.append(TableWorld(folder, database, broker, spark_jars, targets=targets, **settings))
            return made[-1]

        yield make
        for world in made:
            world.stop()


@pytest.fixture
def airflow_world(make_world: Callable[..., World], airflow: Airflow, airflow_home: Path) -> Iterator[AirflowWorld]:
    """A world whose pipeline is the DAG `demo` of a real Airflow; ``deploy`` it before the first run."""
    with psycopg.connect(airflow.env["TIDEMARK_DB"]) as connection:
        connection.execute("DROP SCHEMA tidemark CASCADE")
    migrate(airflow.env["TIDEMARK_DB"])
    world = make_world(settings={"retry_delay": "1s", "kafka": {"slice": {"max_records": 1000}}})
    world.dsn = airflow.env["TIDEMARK_DB"]
    found = AirflowWorld(world, airflow, airflow_home / "pipelines")
    yield found
    found.remove()


@pytest.fixture
def make_world(tmp_path: Path, database: str, broker: Broker, spark_jars: Path) -> Iterator[Callable[..., World]]:
    """Makes the pipeline of this test, with settings of its own: ``make_world(partitions=1, settings={..})``."""
    made: list[World] = []

    def make(**settings: Any) -> World:
        made.append(World(tmp_path / f"world{len(made)}", database, broker, spark_jars, **settings))
        return made[-1]

    yield make
    for world in made:
        world.stop()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A pipeline of this test alone: a topic with two partitions, an empty lake, a fresh manifest database."""
    return make_world()
