"""The Python snippets of docs/reading.md, as they stand there, read what is published and nothing else."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.jars import fetch_for_tests
from sandbox.services.dynamodb import KEY_ID, SECRET, DynamoDB
from sandbox.services.s3 import REGION, Bucket
from tests.worlds.delta_world import DeltaWorld, KeyedDeltaWorld
from tests.worlds.dynamo_world import DynamoWorld
from tests.worlds.iceberg_world import TABLE, IcebergWorld, KeyedIcebergWorld
from tests.worlds.s3_world import S3World
from tests.worlds.table_world import TABLE_SCHEMA, table_sink
from tests.worlds.topic_world import TopicWorld
from tests.worlds.totals_world import TotalsWorld, totals_sink
from tests.worlds.world import Place, World
from tidemark.spark.jars import fitting_jars

PAGE = (CHECKOUT / "docs" / "reading.md").read_text()
PLACE = ["_topic", "_partition", "_offset"]
SHOW = """
import json

def plain(rows, columns):
    match type(rows).__module__.partition(".")[0].removeprefix("_"):
        case "duckdb":
            return rows.project(", ".join(columns)).fetchall()
        case "pandas":
            return rows[columns].values.tolist()
        case "polars":
            return rows.select(columns).rows()
    return [list(row) for row in rows.select(columns).collect()]

print(json.dumps([plain(globals()[name], columns) for name, columns in WANTED.items()], default=str))
"""


def snippets(heading: str) -> list[str]:
    """The Python snippets of a section of the page, or of a part of one."""
    section = re.split(r"\n##+ ", re.split(f"\n##+ {heading}\n", PAGE)[1])[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home where DuckDB finds the extensions that ``INSTALL`` would have fetched."""
    folder = tmp_path_factory.mktemp("home")
    for extension in ("avro", "delta", "httpfs", "iceberg"):
        [file] = packages_of("readers").glob(f"duckdb_extension_{extension}/extensions/*/*.duckdb_extension")
        installed = folder / ".duckdb" / "extensions" / file.parent.name / "linux_amd64"
        installed.mkdir(parents=True, exist_ok=True)
        (installed / file.name).symlink_to(file)
    return folder


Run = Callable[..., list[Any]]


@pytest.fixture
def run(home: Path) -> Run:
    """Runs a snippet beside a world and gives the columns of its variables: ``run(world, snippet, {"rows": [..]})``.

    ``names`` replace those of the page. Spark has the ``jars`` that it would have fetched as packages.
    """

    def run(
        world: World, snippet: str, wanted: dict[str, list[str]], names: dict[str, str], *jars: Path, **more: str
    ) -> list[Any]:
        for name, own in names.items():
            snippet = snippet.replace(name, own)
        spark = ["--master local[2]", "--conf spark.ui.enabled=false", "--conf spark.driver.host=127.0.0.1"]
        if jars:
            spark.append("--driver-class-path " + ":".join(f"{folder}/*" for folder in jars))
        home_and_jars = {"HOME": str(home), "PYSPARK_SUBMIT_ARGS": " ".join([*spark, "pyspark-shell"])}
        done = subprocess.run(
            [sys.executable, "-c", f"{snippet}\nWANTED = {wanted}\n{SHOW}"],
            env=world.environment(PYTHONPATH=str(packages_of("readers")), **home_and_jars, **more),
            cwd=world.folder,  # where Spark leaves a folder
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{snippet}\n{done.stderr}"
        answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    return run


def places(rows: list[list[Any]]) -> Counter[Place]:
    return Counter((topic, int(partition), int(offset)) for topic, partition, offset in rows)


def publish(world: World) -> Counter[Place]:
    """Two runs, of which the second has a column more, and a third one that was killed; the places of the rows."""
    world.produce(60, bad_every=9)
    world.ok("run", "demo", "--run-key", "one")
    world.settings["decode"] = {"format": "json", "schema": TABLE_SCHEMA}
    world.write_pipeline()
    world.produce(60, bad_every=9)
    world.ok("run", "demo", "--run-key", "two")
    good = [number for number in range(world.produced) if number not in world.bad]
    world.produce(30)
    assert world.tidemark("run", "demo", "--run-key", "three", failpoint="publish.before_record:kill9").returncode < 0
    return Counter((world.topic, number % world.partitions, number // world.partitions) for number in good)


@pytest.mark.thorough
def test_files_in_a_folder_are_read_by_their_published_paths(world: World, run: Run) -> None:
    expected = publish(world)
    assert sum(world.listing().values()) > sum(expected.values()) + len(world.bad), "a listing reader sees more"
    read = snippets("Files")
    assert len(read) == 5
    for snippet in read:
        [rows] = run(world, snippet, {"rows": PLACE}, {'"orders"': '"demo"', "_manifests/orders": "_manifests/demo"})
        assert places(rows) == expected, snippet


@pytest.mark.thorough
def test_files_in_a_bucket_are_read_by_the_same_snippets(
    make_s3_world: Callable[..., S3World], s3: Bucket, run: Run
) -> None:
    world = make_s3_world()
    expected = publish(world)
    keys = {
        "AWS_ACCESS_KEY_ID": s3.key_id, "AWS_SECRET_ACCESS_KEY": s3.secret, "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": s3.endpoint_url, "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    _, pandas, polars, *_ = snippets("Files")
    for snippet in (pandas, polars):
        [rows] = run(world, snippet, {"rows": PLACE}, {'"orders"': '"demo"'}, **keys)
        assert places(rows) == expected, snippet
    [duckdb] = snippets("Files in a bucket")
    own = {
        '"orders"': '"demo"', "'reader'": f"'{s3.key_id}'", "'password'": f"'{s3.secret}'",
        "localhost:9000": s3.endpoint_url.partition("://")[2],
        "USE_SSL false": f"USE_SSL {'true' if s3.endpoint_url.startswith('https') else 'false'}",
    }  # fmt: skip
    [rows] = run(world, duckdb, {"rows": PLACE}, own)
    assert places(rows) == expected, "with nothing from the environment"


def of_database(dsn: str, database: str) -> dict[str, str]:
    """What replaces the address, user and password of a database of the page."""
    parts = conninfo_to_dict(dsn)
    return {
        f"postgresql+psycopg://user:password@localhost:5432/{database}": dsn.replace("://", "+psycopg://", 1),
        f"localhost:5432/{database}": f"{parts['host']}:{parts['port']}/{parts['dbname']}",
        '"user"': f'"{parts["user"]}"',
        '"password"': f'"{parts["password"]}"',
    }


@pytest.mark.thorough
def test_a_table_and_totals_are_read_by_one_query(make_totals_world: Callable[..., TotalsWorld], run: Run) -> None:
    world = make_totals_world(settings={"sinks": [totals_sink(), table_sink()]})
    world.produce(90)
    world.ok("run", "demo")
    world.execute("UPDATE public.latest SET _is_deleted = true WHERE k = 3")
    newest = {number % 9: number for number in range(90) if number % 9 != 3}
    names = {
        **of_database(world.targets["warehouse"], "warehouse"),
        "sales.orders": "latest",
        "sales.per_hour": "totals",
    }
    read = snippets("A PostgreSQL table, and totals in it")
    assert len(read) == 3
    for snippet in read:
        wanted = {"rows": ["k", "n"], "totals": ["k", "window_start", "records", "n_sum"]}
        rows, totals = run(world, snippet, wanted, names, fetch_for_tests(STATE, "iceberg")[0])
        assert dict(rows) == newest, snippet
        assert sum(records for _, _, records, _ in totals) == 90, snippet
        assert sum(int(float(n_sum)) for *_, n_sum in totals) == sum(range(90)), snippet


@pytest.mark.thorough
def test_a_topic_is_read_committed(make_topic_world: Callable[..., TopicWorld], spark_jars: Path, run: Run) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40, bad_every=9)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(20)
    world.tidemark("run", "demo", "--run-key", "two", failpoint="publish.before_record:kill9")
    world.ok("retry", "demo")
    expected = world.everything() - Counter(
        (world.topic, number % world.partitions, number // world.partitions) for number in world.bad
    )
    python, spark = snippets("A Kafka topic")
    names = {"localhost:9092": world.broker.bootstrap_servers, "orders_clean": world.out}
    [rows] = run(world, python, {"rows": ["tidemark.topic", "tidemark.partition", "tidemark.offset"]}, names)
    assert places(rows) == expected
    [rows] = run(world, spark, {"rows": ["headers"]}, names, fitting_jars(spark_jars))
    assert len(rows) == sum(expected.values())


@pytest.mark.thorough
def test_an_iceberg_table_is_read_by_its_catalog(make_iceberg_world: Callable[..., IcebergWorld], run: Run) -> None:
    world = make_iceberg_world()
    expected = publish(world)
    names = {
        **of_database(world.targets["warehouse"], "lakehouse"),
        "sales.orders": TABLE,
        ': "warehouse"': f': "{world.folder / "warehouse"}"',
    }
    read = snippets("An Iceberg table")
    assert len(read) == 4
    for snippet in read:
        columns = ["_topic", "_topic_partition", "_offset"]
        [rows] = run(world, snippet, {"rows": columns}, names, fetch_for_tests(STATE, "iceberg")[0])
        assert places(rows) == expected, snippet


@pytest.mark.thorough
def test_a_delta_table_is_read_by_its_log(make_delta_world: Callable[..., DeltaWorld], run: Run) -> None:
    world = make_delta_world()
    expected = publish(world)
    read = snippets("A Delta table")
    assert len(read) == 4
    for snippet in read:
        columns = ["_topic", "_topic_partition", "_offset"]
        names = {"tables/orders": world.location}
        [rows] = run(world, snippet, {"rows": columns}, names, fetch_for_tests(STATE, "delta")[0])
        assert places(rows) == expected, snippet


def publish_three_times(world: KeyedIcebergWorld | KeyedDeltaWorld) -> Counter[Place]:
    """Three runs, of which each replaces rows of those before it; the places of the rows that stand."""
    for number in range(3):
        world.produce(30, bad_every=13 if number else 0)
        world.ok("run", "demo", "--run-key", str(number))
    world.assert_complete()
    return Counter(place for _, place in world.current().values())


@pytest.mark.thorough
def test_an_iceberg_table_with_a_key_is_read_by_the_same_snippets(
    make_keyed_iceberg_world: Callable[..., KeyedIcebergWorld], run: Run
) -> None:
    world = make_keyed_iceberg_world()
    expected = publish_three_times(world)
    names = {
        **of_database(world.targets["warehouse"], "lakehouse"),
        "sales.orders": world.written,
        ': "warehouse"': f': "{world.folder / "warehouse"}"',
    }
    for snippet in snippets("An Iceberg table"):
        columns = ["_topic", "_topic_partition", "_offset"]
        [rows] = run(world, snippet, {"rows": columns}, names, fetch_for_tests(STATE, "iceberg")[0])
        assert places(rows) == expected, snippet


@pytest.mark.thorough
def test_a_delta_table_with_a_key_is_read_by_the_same_snippets(
    make_keyed_delta_world: Callable[..., KeyedDeltaWorld], run: Run
) -> None:
    world = make_keyed_delta_world()
    expected = publish_three_times(world)
    for snippet in snippets("A Delta table"):
        columns = ["_topic", "_topic_partition", "_offset"]
        names = {"tables/orders": world.location}
        [rows] = run(world, snippet, {"rows": columns}, names, fetch_for_tests(STATE, "delta")[0])
        assert places(rows) == expected, snippet


def test_totals_in_dynamodb_are_read_without_keys_that_have_no_records(
    make_dynamo_world: Callable[..., DynamoWorld], dynamodb: DynamoDB, run: Run
) -> None:
    by_record = {"group_by": ["n"], "values": {"records": "count"}}
    world = make_dynamo_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.settings["sinks"] = [world.entry(aggregate=by_record)]
    world.write_pipeline()
    world.produce(30)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(60)
    world.ok("run", "demo", "--run-key", "two")
    world.settings["transform"] = [{"filter": "n >= 5"}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    [snippet] = snippets("Totals in DynamoDB")
    names = {"sales_per_hour": world.items_table}
    keys = {
        "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": dynamodb.endpoint_url,
    }  # fmt: skip
    [rows] = run(world, snippet, {"rows": ["n", "records"]}, names, **keys)
    assert sorted((int(n), int(records)) for n, records in rows) == [(n, 1) for n in range(5, 90)]
