"""A pipeline's own logic in Spark: its code comes with the order, and the rows are those of the tests without Spark."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_job import assert_same_receipt, elsewhere, orders
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World
from tidemark.errors import Blocked, UndecodableRecord
from tidemark.model.order import TransformOrder
from tidemark.spark import job

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")]

CODE = """
import os

from parts.rules import LEAST

def first_ones(batch):
    print("a line on standard output of a worker")
    os.write(1, b"and one that Python does not see\\n")
    kept = [at for at, n in enumerate(batch["n"].to_pylist()) if n >= LEAST]
    if 77 in batch["n"].to_pylist():
        raise ValueError("77")
    return batch.take(kept)
"""
LOGIC = [
    {"filter": "n % 2 = 0 OR n > 50"},
    {"python": "selection_of_demo:first_ones"},
    {"dedupe": {"keys": ["last"]}},
]


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    world = make_world(partitions=3, settings={"kafka": {"slice": {"max_records": 1000}}})
    (world.pipelines / "mine" / "parts").mkdir(parents=True)
    (world.pipelines / "mine" / "selection_of_demo.py").write_text(CODE)
    (world.pipelines / "mine" / "parts" / "rules.py").write_text("LEAST = 5\n")
    select = {"select": ["*", "right(name, 1) AS last"]}
    world.settings = {**world.settings, "code": "mine", "transform": [*LOGIC[:2], select, LOGIC[2]]}
    world.write_pipeline()
    world.produce(120, bad_every=9)
    return world


def test_code_sql_and_dedupe_make_in_spark_what_they_make_without_it(
    session: SparkSession, world: World, tmp_path: Path
) -> None:
    [order] = orders(world)
    receipt = job.stage(session, order)
    assert_same_receipt(receipt, arrow_stage(elsewhere(order, tmp_path / "other")))
    assert sum(count.filtered for count in receipt.partitions) > 20
    assert sum(count.deduplicated for count in receipt.partitions) > 20
    assert "selection_of_demo" not in sys.modules


def test_records_before_the_ranges_are_read_and_only_seen(session: SparkSession, world: World, tmp_path: Path) -> None:
    [order] = orders(world)
    within = TransformOrder(
        "dedupe", {"keys": ["last"], "keep": "first", "within_us": 3_600_000_000}, whole_partitions=True
    )
    order = replace(
        order,
        transforms=(*order.transforms[:-1], within),
        before=tuple(replace(covered, start=5, end=20) for covered in order.ranges),
        ranges=tuple(replace(covered, start=20) for covered in order.ranges),
    )
    receipt = job.stage(session, order)
    assert_same_receipt(receipt, arrow_stage(elsewhere(order, tmp_path / "other")))
    assert [count.first for count in receipt.partitions] == [20, 20, 20]
    assert sum(count.deduplicated for count in receipt.partitions) > 20


def test_an_exception_on_an_executor_names_file_line_and_offset(session: SparkSession, world: World) -> None:
    world.settings = {**world.settings, "transform": LOGIC[1:2]}
    world.write_pipeline()
    [order] = orders(world)
    [covered] = [part for part in order.ranges if part.at.partition == 77 % 3]  # where every record can be decoded
    place = r"transform\[0\]\.python: code/selection_of_demo\.py:11: ValueError"
    with pytest.raises(UndecodableRecord, match=place) as failed:
        job.stage(session, replace(order, on_error="fail", ranges=(covered,)))
    assert failed.value.context["offset"] == str(77 // 3)


def test_a_partition_that_spark_splits_is_refused_where_logic_needs_it_whole(
    session: SparkSession, world: World
) -> None:
    [order] = [replace(order, task_records=1) for order in orders(world)]
    split: Any = SimpleNamespace(
        read=session.read.option("minPartitions", "7"), conf=session.conf, sparkContext=session.sparkContext
    )
    with pytest.raises(Blocked, match="tasks of Spark read one partition"):
        job.stage(split, order)
