"""Secrets that are canaries: after runs that succeed and runs that fail, they are in no file, table, command line,
page or log."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import psycopg
import pytest
from confluent_kafka.admin import AclOperation
from psycopg.conninfo import conninfo_to_dict

from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from sandbox.services.spark_server import SparkServer
from tests.worlds.airflow_world import DAG, AirflowWorld, postgres_connection
from tests.worlds.all_sinks_world import AllSinksWorld
from tests.worlds.secret_search import Canaries, Watch
from tests.worlds.secured_world import CONNECTION, Secured
from tests.worlds.world import World
from tidemark.connections.lookup import Secret
from tidemark.kafka.java import java_security
from tidemark.lifecycle.attempt import order_of

MakeWorld = Callable[..., AllSinksWorld]

# All that Spark and Kafka's client say, which includes every option they were given, into TIDEMARK_HOME/_logs.
LOUD = """
rootLogger.level = INFO
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %p %c{1} %m%n
logger.spark.name = org.apache.spark
logger.spark.level = info
logger.source.name = org.apache.spark.sql.kafka010
logger.source.level = trace
logger.tokens.name = org.apache.spark.kafka010
logger.tokens.level = trace
logger.kafka.name = org.apache.kafka
logger.kafka.level = info
logger.login.name = org.apache.kafka.common.security
logger.login.level = trace
logger.ssl.name = org.apache.kafka.common.network
logger.ssl.level = trace
"""


def loud(folder: Path) -> dict[str, str]:
    """An environment in which Spark says everything, and keeps an event log with every plan it made."""
    conf, events = folder / "conf", folder / "events"
    conf.mkdir()
    events.mkdir()
    (conf / "log4j2.properties").write_text(LOUD)
    (conf / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\nspark.sql.ui.explainMode extended\n"
        "spark.eventLog.compress false\n"
    )
    return {"SPARK_CONF_DIR": str(conf)}


@pytest.fixture
def warehouse(postgres: Postgres) -> Iterator[str]:
    """A database for tables, totals and an Iceberg catalog; the password of its owner is a canary."""
    owner, password = f"owner_{uuid.uuid4().hex[:8]}", f"warehouse-{uuid.uuid4().hex}"
    with postgres.temporary_database("warehouse") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        name = conninfo_to_dict(dsn)["dbname"]
        connection.execute(f"CREATE ROLE {owner} LOGIN PASSWORD '{password}'")
        connection.execute(f"ALTER DATABASE {name} OWNER TO {owner}")
        yield f"postgresql://{owner}:{password}@127.0.0.1:{postgres.port}/{name}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE {owner}")


def write_through_the_connection(world: AllSinksWorld) -> None:
    """Have the topic, which is another sink, written over the connection that the source is read over."""
    for sink in world.settings["sinks"]:
        if "topic" in sink:
            sink["topic"] |= {"bootstrap_servers": None, "connection": CONNECTION}
    world.write_pipeline()


def canaries_of(secured: Secured, world: World) -> Canaries:
    extra = secured.extra("mTLS")
    key = Path(extra["ssl.key.location"]).read_text().splitlines()
    opened = java_security({name: value for name, value in extra.items() if name.startswith(("ssl.", "security."))})
    return Canaries(
        {
            "the user's password": secured.password,
            "the client's secret": secured.secret,
            "the key's password": secured.key_password,
            "the key": key[2],
            "the key without its password": cast("Secret", opened["ssl.keystore.key"]).reveal().splitlines()[2],
            "the password of the database": str(conninfo_to_dict(world.dsn)["password"]),
            "the password of the warehouse": str(conninfo_to_dict(world.targets["warehouse"])["password"]),
        }
    )


def command(canaries: Canaries, world: World, *words: str, env: dict[str, str], fails: bool = False) -> str:
    """The command line with Spark in its process; what it printed is looked at."""
    process = world.start(*words, env=env, spark=True)
    out, err = process.communicate(timeout=180)
    assert (process.returncode != 0) == fails, f"{words}: {out}{err}"
    canaries.look(f"output of {words}", out + err)
    return out + err


def test_a_search_finds_what_is_planted(tmp_path: Path, database: str) -> None:
    planted = f"planted-{uuid.uuid4().hex}"
    canaries = Canaries({"it": planted})
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"\0\xff" + planted.encode() + b"\0")
    canaries.look_at_files(tmp_path)
    world_table = "tidemark.event"
    assert world_table in canaries.look_at_database(database)
    with Watch(canaries, tmp_path) as watch:
        (tmp_path / "order.json").write_text(planted)
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", planted]) as process:
            try:
                wait_until(
                    lambda: any(planted in line for line in [*watch.commands]), "its line to be seen", timeout=60
                )
                wait_until(lambda: planted in watch.orders, "the order to be seen", timeout=60)
            finally:
                process.kill()
    assert f"it in {tmp_path / 'deep' / 'file'}" in canaries.leaks
    assert sum(leak.startswith("it in while it ran: ") for leak in canaries.leaks) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "mTLS", "OAUTHBEARER"])
def test_secrets_are_nowhere_after_runs_on_the_command_line(
    make_secured_world: MakeWorld, secured: Secured, postgres: Postgres, warehouse: str, tmp_path: Path, way: str
) -> None:
    world = make_secured_world(way, kind=AllSinksWorld, targets={"warehouse": warehouse})
    write_through_the_connection(world)
    canaries = canaries_of(secured, world)
    world.produce(60, bad_every=20)
    env = loud(tmp_path)
    with Watch(canaries, world.folder) as watch:
        command(canaries, world, "run", "demo", "--master", "local[2]", env=env)
        world.assert_complete()
        secured.broker.allow(world.topic, "reader", AclOperation.DESCRIBE)
        secured.broker.allow(world.topic, "ANONYMOUS", AclOperation.ALL)
        world.produce(20)
        printed = command(canaries, world, "run", "demo", "--master", "local[2]", env=env, fails=True)
    assert any("tidemark.cli run demo" in line for line in watch.commands)
    assert ("Kafka refuses this client" if way == "mTLS" else "Kafka does not let Spark read") in printed
    for words in (("manifests", "demo", "--json"), ("show", "1", "--json"), ("audit", "demo", "--json")):
        canaries.look(f"output of {words}", world.here(*words).output)
    for manifest in world.context().database.manifests.find("demo"):
        canaries.look("an order", order_of(world.context(), manifest, 1).to_json())
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {conninfo_to_dict(warehouse)['user']} PASSWORD 'another one'")
    unfinished = () if way == "mTLS" else (("retry", "demo"),)  # with mTLS nothing was planned
    for words in (("audit", "demo"), *unfinished):
        refused = world.here(*words)
        assert refused.exit_code != 0
        canaries.look(f"output of {words} with a password that is no longer right", refused.output)
    files = {path.name for path in canaries.look_at_files(world.folder)}
    assert {"spark.log", "_owner.json", "demo.yaml"} <= files
    events = canaries.look_at_files(tmp_path / "events")
    assert any("KafkaRelation" in path.read_text() for path in events), "the event log has no plan"
    assert "ConsumerConfig values" in (world.folder / "_logs" / "spark.log").read_text(), "Kafka's client said nothing"
    assert {"tidemark.event", "tidemark.attempt"} <= set(canaries.look_at_database(world.dsn))
    beside = postgres.dsn(str(conninfo_to_dict(warehouse)["dbname"]))
    assert {"public.iceberg_tables", "public.totals"} <= set(canaries.look_at_database(beside))
    assert canaries.leaks == [], "I26 no secret"


@pytest.mark.thorough
def test_secrets_are_nowhere_after_runs_on_a_spark_that_stays_up(
    make_secured_world: MakeWorld, secured: Secured, warehouse: str, spark_jars: Path, tmp_path: Path
) -> None:
    """The server gets them with the plan and from the client's memory; its log and its events have none."""
    world = make_secured_world("SCRAM-SHA-512", kind=AllSinksWorld, targets={"warehouse": warehouse})
    canaries = canaries_of(secured, world)
    world.produce(60, bad_every=20)
    environment = {**loud(tmp_path), "TIDEMARK_SPARK_JARS": str(spark_jars)}
    with SparkServer(tmp_path, environment, master="local[2]") as server:
        remote = {"TIDEMARK_SPARK_REMOTE": server.remote}
        with Watch(canaries, world.folder):
            command(canaries, world, "run", "demo", env=remote)
            world.assert_complete()
            secured.broker.allow(world.topic, "reader", AclOperation.DESCRIBE)
            secured.broker.allow(world.topic, "ANONYMOUS", AclOperation.ALL)
            world.produce(20)
            refused = command(canaries, world, "run", "demo", env=remote, fails=True)
    assert "Kafka does not let Spark read" in refused
    canaries.look_at_files(world.folder)
    texts = [path.read_text(errors="replace") for path in canaries.look_at_files(tmp_path)]
    assert any("SparkListenerConnectOperationStarted" in text for text in texts), "the event log has no job of a client"
    assert any("ConsumerConfig values" in text for text in texts), "Kafka's client said nothing"
    assert canaries.leaks == [], "I26 no secret"


@pytest.mark.thorough
@pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine
def test_secrets_are_nowhere_after_runs_in_airflow(
    airflow_world: AirflowWorld, make_secured_world: MakeWorld, secured: Secured, warehouse: str
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    targets = {"warehouse": warehouse}
    world = make_secured_world("SCRAM-SHA-512", kind=AllSinksWorld, targets=targets, retry_delay="1s", retries=0)
    write_through_the_connection(world)
    world.dsn, demo.world = demo.world.dsn, world
    canaries = canaries_of(secured, world)
    extra = secured.extra("SCRAM-SHA-512")
    servers, _, port = extra.pop("bootstrap.servers").rpartition(":")
    password = extra.pop("sasl.password")
    airflow.create_connection(
        CONNECTION, "kafka", servers, port=int(port), login=extra.pop("sasl.username"), password=password,
        extra=json.dumps(extra),
    )  # fmt: skip
    airflow.create_connection("warehouse", **postgres_connection(warehouse))
    try:
        world.produce(60, bad_every=20)
        demo.deploy()
        with Watch(canaries, world.folder) as watch:
            run_id = demo.trigger()
            demo.succeed(run_id)
            world.assert_complete()
            secured.broker.allow(world.topic, "reader", AclOperation.DESCRIBE)
            secured.broker.allow(world.topic, "ANONYMOUS", AclOperation.ALL)
            world.produce(20)
            failed = demo.trigger()
            demo.fail(failed)
        assert any("tidemark/spark/application.py" in line for line in watch.commands)
        assert any('"connection": "secured"' in order for order in watch.orders)
        for run in (run_id, failed):
            canaries.look("Airflow's task instances", json.dumps(airflow.task_instances(DAG, run), default=str))
            canaries.look("Airflow's logs", demo.logs(run, ("success", "failed", "up_for_retry")))
        logs = canaries.look_at_files(airflow.home / "logs")
        assert any("Kafka does not let Spark read" in path.read_text(errors="replace") for path in logs)
        canaries.look_at_files(airflow.logs)
        canaries.look_at_files(world.folder)
        tables = canaries.look_at_database(airflow._metadata_dsn)
        assert {"public.connection", "public.rendered_task_instance_fields", "public.xcom"} <= set(tables)
        canaries.look_at_database(world.dsn)
        assert canaries.leaks == []
    finally:
        airflow.delete_connection(CONNECTION)
        airflow.delete_connection("warehouse")
