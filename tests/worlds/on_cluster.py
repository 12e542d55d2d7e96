"""Commands whose executors run on a cluster, and a pipeline whose logic and decoders must come to them."""

import subprocess
import sys
from io import BytesIO
from pathlib import Path

import fastavro

from sandbox.services.processes import wait_until
from tests.worlds.table_world import TABLE_SCHEMA, TableWorld
from tests.worlds.world import EPOCH, KEYS, World
from tidemark.spark.cluster import APPLICATION
from tidemark.spark.session import spark_configuration

START = 480  # seconds for a driver and two executors: 20 on two idle cores, 200 were seen on busy ones

AVRO = {
    "type": "record", "name": "Row", "fields": [
        {"name": "n", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "name", "type": "string"}, {"name": "k", "type": "long"},
    ],
}  # fmt: skip


def start(world: TableWorld, master: str, *words: str, failpoint: str = "", **more: str) -> "subprocess.Popen[str]":
    """Start a command whose executors run on a cluster; ``more``: variables of its driver."""
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "TIDEMARK_SPARK_MASTER": master, **more}
    return world.start(*words, failpoint=failpoint, spark=True, env=env)


def local_driver(world: World) -> str:
    """The words of a shell for a driver on this machine, with the arguments of the script that they stand in."""
    conf = spark_configuration(world.spark_jars) | {"spark.driver.host": "127.0.0.1"}
    options = " ".join(f"--conf '{name}={value}'" for name, value in conf.items())
    return f"{Path(sys.executable).with_name('spark-submit')} --master 'local[2]' {options} {APPLICATION} \"$@\""


def write_script(file: Path, *commands: str) -> None:
    """Write a script that starts drivers, as that of a user does on a cluster."""
    python = f"export PYSPARK_PYTHON={sys.executable} SPARK_LOCAL_IP=127.0.0.1"
    file.write_text("\n".join(["#!/bin/sh", python, *commands, ""]))
    file.chmod(0o755)


def end(process: "subprocess.Popen[str]") -> tuple[str, str]:
    out, err = process.communicate(timeout=START)
    assert "Traceback" not in err
    return out, err


def assert_nothing_but_staging_differs(world: World) -> None:
    """A driver that wakes late may stage some more before it notices that its order is gone, and its workers a moment
    after it has ended: the next retry removes that.
    """

    def is_clean() -> bool:
        audited = world.here("audit", "demo", "--deep")
        if audited.exit_code:
            assert "1 difference" in audited.output, audited.output
            assert "staging was left by an attempt that died; next: tidemark retry demo" in audited.output
            world.ok("retry", "demo")
        return audited.exit_code == 0

    wait_until(is_clean, "what a late driver has staged to be removed", timeout=60)


def with_logic_and_avro(world: TableWorld) -> None:
    """Add records of a second format in a second topic, SQL, and a function in a file."""
    (world.pipelines / "code").mkdir()
    (world.pipelines / "code" / "less.py").write_text("def half(batch):\n    return batch.filter(batch['even'])\n")
    logic = [{"select": ["*", "n % 2 = 0 AS even"]}, {"python": "less:half"}]
    decode = [
        {"topics": [world.topic], "format": "json", "schema": TABLE_SCHEMA},
        {"topics": [_of_avro(world)], "format": "avro", "schema": AVRO},
    ]
    world.settings = {**world.settings, "code": "code", "transform": logic, "decode": decode}
    world.write_pipeline(topics=[world.topic, _of_avro(world)])
    send_avro(world, _of_avro(world), range(600, 650))


def assert_logic_and_avro(world: TableWorld) -> None:
    """Every second record of both topics is written, and the audit finds no difference."""
    [manifest] = world.json("manifests", "demo")
    kept = [n for n in range(0, 650, 2) if n not in world.bad]
    assert (manifest["counts"]["written"], manifest["counts"]["dead_lettered"]) == (len(kept), len(world.bad))
    assert world.ok("audit", "demo", "--deep") == ""
    world.broker.delete_topic(_of_avro(world))


def _of_avro(world: TableWorld) -> str:
    return f"{world.topic}-avro"


def send_avro(world: TableWorld, topic: str, numbers: range) -> None:
    world.broker.create_topic(topic, 2, {"retention.ms": "-1"})
    producer = world.broker.producer()
    for n in numbers:
        written = BytesIO()
        fastavro.schemaless_writer(written, AVRO, {"n": n, "at": EPOCH, "name": f"r{n}", "k": n % KEYS})
        producer.produce(topic, written.getvalue())
    assert producer.flush(30) == 0
