"""``transform: [{spark: ..}]``: a user's function of DataFrames in Spark, and the promises that hold around it."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sandbox.services.spark_server import SparkServer
from tests.spark.test_job import assert_same_receipt, elsewhere, orders
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import KEYS, World
from tidemark.errors import WorkFailed
from tidemark.lifecycle.attempt import order_of
from tidemark.model.order import Order
from tidemark.spark import job

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
]

SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT NOT NULL"
CODE = """
from pyspark.sql.functions import col, udf

from parts.words import loud

@udf("string")
def shouted(name):
    return loud(name)

def enriched(rows):
    print("a line on standard output")
    sizes = rows.sparkSession.createDataFrame([(k, f"size {k % 3}") for k in range(1000)], "k long, size string")
    joined = rows.join(sizes.repartition(3), "k").where("n % 3 <> 1").withColumn("name", shouted(col("name")))
    return joined.orderBy("size", "n").drop("_key", "_timestamp")
"""
COLUMNS = {
    "n": "BIGINT NOT NULL",
    "at": "TIMESTAMPTZ NOT NULL",
    "name": "VARCHAR",
    "k": "BIGINT NOT NULL",
    "size": "VARCHAR",
}
ENRICHED = {"spark": {"function": "shop:enriched", "columns": COLUMNS}}
THE_SAME_IN_SQL = [
    {"filter": "n <> 50"},
    {"filter": "n % 3 <> 1"},
    {"select": ['"at"', "k", "n", "upper(name) || '!' AS name", "'size ' || (k % 3) AS size"]},
]


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    world = make_world(partitions=3, settings={"kafka": {"slice": {"max_records": 1000}}})
    code(world, CODE)
    (world.pipelines / "mine" / "parts").mkdir()
    (world.pipelines / "mine" / "parts" / "words.py").write_text("def loud(text):\n    return text.upper() + '!'\n")
    decode = {"format": "json", "schema": SCHEMA}
    world.settings |= {"decode": decode, "code": "mine", "transform": [{"filter": "n <> 50"}, ENRICHED]}
    world.write_pipeline()
    world.produce(120, bad_every=9)
    return world


def code(world: World, text: str) -> None:
    (world.pipelines / "mine").mkdir(exist_ok=True)
    (world.pipelines / "mine" / "shop.py").write_text(text)


def sink_rows(world: World) -> list[tuple[int, str, str]]:
    rows = [row for path in world.data_paths() for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted((row["n"], row["name"], row["size"]) for row in rows)


def test_a_function_with_joins_makes_the_files_counts_and_digests_that_sql_makes(
    session: SparkSession, world: World, tmp_path: Path
) -> None:
    [order] = orders(world)
    receipt = job.stage(session, order)
    world.settings["transform"] = THE_SAME_IN_SQL
    world.write_pipeline()
    [in_sql] = [replace(elsewhere(order, tmp_path / "sql"), transforms=made.transforms) for made in planned(world)]
    assert_same_receipt(receipt, arrow_stage(in_sql))
    assert sum(count.filtered for count in receipt.partitions) > 30
    assert sum(count.dead_lettered for count in receipt.partitions) == 14


def planned(world: World) -> list[Order]:
    context = world.context()
    return [order_of(context, manifest, 1) for manifest in context.database.manifests.find("demo")]


HEAD = "from pyspark.sql.functions import col, lit, when\n\ndef enriched(rows):\n    "
REFUSED = {
    "twice": ("return rows.union(rows)", "gave two rows back for one place: explode after it makes several"),
    "no place": ("return rows.drop('_offset')", "gave rows back without _offset, which say the record of a row"),
    "null": (
        "return rows.withColumn('_offset', when(col('n') != 42, col('_offset')))",
        "gave a row back without its place: _offset is null",
    ),
    "not read": (
        "return rows.withColumn('_offset', col('_offset') + lit(1000000))",
        "gave a row back at a place that was not read",
    ),
    "filtered before": (
        "return rows.withColumn('_offset', when(col('n') == 53, lit(16).cast('long')).otherwise(col('_offset')))",
        "gave a row back at a place of which it got none",
    ),
    "type": ("return rows.withColumn('n', col('n').cast('int'))", "gave column n back as int, and not as bigint"),
    "columns": ("return rows.drop('name')", "gave the columns .* back, and not .*; write columns in the pipeline file"),
    "null value": (
        "return rows.withColumn('n', when(col('n') != 41, col('n')))",
        "gave null back in column n, which has none",
    ),
    "no frame": ("return rows.count()", "gave int back, and not a DataFrame"),
    "raises": ("return rows.where(nothing)", r"failed at code/shop\.py:4: NameError"),
    "analysis": ("return rows.where('nothing > 1')", r"failed at code/shop\.py:4: AnalysisException"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_breaks_the_evidence_is_refused_with_its_place(session: SparkSession, world: World, case: str) -> None:
    text, cause = REFUSED[case]
    code(world, HEAD + text)
    world.settings["transform"] = [{"filter": "n <> 50"}, {"spark": "shop:enriched"}]
    world.write_pipeline()
    [order] = orders(world)
    with pytest.raises(WorkFailed, match=f"^shop:enriched {cause}") as failed:
        job.stage(session, order)
    context = failed.value.context
    if case in ("twice", "null", "not read", "filtered before", "null value"):
        assert {"topic", "partition"} <= set(context)
    if case == "filtered before":
        assert (context["partition"], context["offset"]) == ("2", "16")
    if case == "null value":
        assert (context["partition"], context["offset"]) == (str(41 % 3), str(41 // 3))


def test_what_a_task_before_the_function_refuses_keeps_its_name(session: SparkSession, world: World) -> None:
    """Such tasks have no report: Spark's own error carries it."""
    (world.pipelines / "mine" / "rules.py").write_text("def none(batch):\n    return None\n")
    world.settings["transform"] = [{"python": "rules:none"}, ENRICHED]
    world.write_pipeline()
    [order] = orders(world)
    with pytest.raises(WorkFailed, match=r"^rules:none gave NoneType back"):
        job.stage(session, order)


def test_a_deletion_that_the_function_takes_away_is_refused(
    session: SparkSession, make_world: Callable[..., World]
) -> None:
    key = {"format": "json", "schema": "n BIGINT NOT NULL"}
    decode = {"format": "json", "schema": SCHEMA, "key": key, "tombstones": ["n"]}
    code_and_logic = {"code": "mine", "transform": [{"spark": "shop:enriched"}]}
    world = make_world(partitions=2, settings={"decode": decode, "event_time": {}, **code_and_logic})
    code(world, HEAD + "return rows.where('n > 7')")
    row = {"n": 9, "at": "2024-03-01T00:00:00Z", "name": "r9", "k": 1}
    world.send(json.dumps(row), key=b'{"n": 9}')
    world.send(None, None, key=b'{"n": 7}', partition=1)
    [order] = orders(world)
    with pytest.raises(WorkFailed, match="took a deletion away: rows with _is_deleted must stay, as in") as failed:
        job.stage(session, order)
    assert (failed.value.context["partition"], failed.value.context["offset"]) == ("1", "0")
    code(world, HEAD + "return rows.where('_is_deleted OR n > 9')")
    [order] = planned(world)
    counts = [(count.read, count.filtered, count.dead_lettered) for count in job.stage(session, order).partitions]
    assert counts == [(1, 1, 0), (2, 0, 0)]


def test_after_a_kill_the_retry_makes_each_row_once_and_a_replay_the_same_digest(world: World) -> None:
    killed = world.tidemark("run", "demo", failpoint="stage.mid:kill9", spark=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert world.data_paths() == []
    for command in ("retry", "demo"), ("replay", "demo", "--manifest", "1"):
        done = world.tidemark(*command, spark=True)
        assert done.returncode == 0, done.stderr
        assert "a line on standard output" not in done.stdout
        good = [n for n in range(120) if n % 9 and n != 50 and n % 3 != 1]
        assert sink_rows(world) == [(n, f"R{n}!", f"size {n % KEYS % 3}") for n in good]
    [attempt] = {manifest["published_attempt"] for manifest in world.manifests()}
    assert attempt == 2  # the replay has made the same
    assert world.ok("audit", "demo", "--deep") == ""


def test_the_next_step_of_a_refusal_leads_out(world: World) -> None:
    good = (world.pipelines / "mine" / "shop.py").read_text()
    code(world, good.replace("return joined", "return joined.union(joined)"))
    failed = world.tidemark("run", "demo", spark=True)
    assert failed.returncode != 0
    for named in "shop:enriched gave two rows back for one place", "demo", "manifest 1", world.topic, "partition":
        assert named in failed.stderr
    code(world, good)
    [step] = [line for line in failed.stderr.splitlines() if "tidemark retry" in line]
    assert "tidemark retry demo" in step
    done = world.tidemark("retry", "demo", "--manifest", "1", spark=True)
    assert done.returncode == 0, done.stderr
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_command_without_spark_says_so_and_validate_needs_none(world: World) -> None:
    assert world.here("validate").exit_code == 0
    peeked = world.here("peek", "demo")
    assert peeked.exit_code != 0
    assert "shop:enriched works on DataFrames, and this command starts no Spark" in peeked.stderr
    assert "tidemark run demo" in peeked.stderr


WITH_UDF = """
from pyspark.sql.functions import col, udf

LEAST = 0

@udf("boolean")
def wanted(n):
    return n >= LEAST

def enriched(rows):
    return rows.repartition(5, "name").where(wanted(col("n")))
"""


@pytest.mark.parametrize("on_server", [False, True], ids=["submit", "connect"])
def test_sinks_of_each_kind_get_each_row_once(
    make_all_sinks_world: Callable[..., World], spark_server: SparkServer, *, on_server: bool
) -> None:
    world = make_all_sinks_world(partitions=2)
    how = {"on": spark_server.remote} if on_server else {"spark": True}
    code(world, WITH_UDF)
    world.settings["code"] = "mine"
    world.settings["transform"].append({"spark": "shop:enriched"})
    world.write_pipeline()
    world.produce(60)
    killed = world.tidemark("run", "demo", failpoint="publish.before_record:kill9", **how)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for command in ("retry", "demo"), ("run", "demo"), ("replay", "demo", "--manifest", "1"):
        done = world.tidemark(*command, **how)
        assert done.returncode == 0, done.stderr
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""
