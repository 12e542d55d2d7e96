"""docs/from-structured-streaming.md: its job, its pipelines and its commands, with a real streaming job of Spark."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.broker import Broker

PAGE = (CHECKOUT / "docs" / "from-structured-streaming.md").read_text()
FILE = re.compile(r"[Ss]ave\s+(?:this|it)\s+as\s+`([^`]+)`.*?\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
START, JOB, TRIAL, END_TRIAL, LAST_JOB, ENDS, DRY_RUN, RUN, WAY_BACK = COMMANDS
OFFSETS = re.compile(r'\{"orders":\{.*\}\}')  # as they stand in the checkpoint and in the pipeline file
NO_JSON = 17  # the number of the record that is none
pytestmark = pytest.mark.timeout(900)

Place = tuple[int, int]  # partition, offset


class Mover:
    """Somebody who has the page, a topic with two partitions, and a folder."""

    def __init__(self, folder: Path, broker: Broker, environment: dict[str, str]) -> None:
        self.folder = folder
        self.broker = broker
        self.environment = environment
        self.produced = 0

    def produce(self, count: int) -> None:
        producer = self.broker.producer()
        for number in range(self.produced, self.produced + count):
            order = {"id": number, "amount": number / 4, "at": f"2024-03-{1 + number % 3:02}T10:00:00Z"}
            value = "{not json" if number == NO_JSON else json.dumps(order)
            producer.produce("orders", value, partition=number % 2)
        assert producer.flush(30) == 0
        self.produced += count

    def save(self, *names: str) -> None:
        """Files of the page, as they stand there."""
        texts = dict(FILE.findall(PAGE))
        for name in names:
            (self.folder / name).write_text(texts[name])

    def edit(self, name: str, pattern: str | re.Pattern[str], new: str) -> None:
        file = self.folder / name
        text, count = re.subn(pattern, lambda _: new, file.read_text())
        assert count == 1, f"{pattern} in {name}"
        file.write_text(text)

    def type(self, commands: str) -> str:
        """What is printed; each command must succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{START}\n{commands}"],
            cwd=self.folder, env=self.environment, text=True, capture_output=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def everything(self) -> Counter[Place]:
        return Counter((number % 2, number // 2) for number in range(self.produced))

    def of_job(self, folder: str) -> Counter[Place]:
        """The records that a streaming job has written."""
        return places(self.folder.glob(f"{folder}/day=*/*.parquet"), "partition", "offset")

    def of_pipeline(self) -> Counter[Place]:
        """The records that are published, dead letters among them."""
        listed = self.type("tidemark objects orders; tidemark objects orders --dead-letters")
        return places(map(Path, listed.split()), "_partition", "_offset")


def places(files: Iterable[Path], partition: str, offset: str) -> Counter[Place]:
    seen: Counter[Place] = Counter()
    for file in files:
        table = pq.read_table(file, columns=[partition, offset], partitioning=None)
        seen.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return seen


@pytest.fixture
def mover(tmp_path: Path, database: str, broker: Broker, spark_jars: Path) -> Iterator[Mover]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    own = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TIDEMARK_DB": database,
        "TIDEMARK_SPARK_JARS": str(spark_jars),
        "TIDEMARK_SPARK_MASTER": "local[2]",
        "AIRFLOW_CONN_KAFKA_DEFAULT": f"kafka://{broker.bootstrap_servers}",
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore:PySpark does not yet fully support pandas:FutureWarning",  # PySpark 4.2
    }
    (tmp_path / "pipelines").mkdir()
    broker.create_topic("orders", 2, {"retention.ms": "-1"})
    mover = Mover(tmp_path, broker, {**inherited, **own})
    mover.save("orders_stream.py")
    yield mover
    broker.delete_topic("orders")


def ended(mover: Mover) -> str:
    """The job has ended with two batches; gives the line of its checkpoint, which the pipeline file has then."""
    mover.produce(60)
    mover.type(JOB)
    mover.produce(30)
    listed = mover.type(LAST_JOB).split()
    assert listed == ["old/checkpoint/commits:", "0", "1", "old/checkpoint/offsets:", "0", "1"]
    line = mover.type(ENDS).strip()
    mover.save("pipelines/orders.yaml", "check.py")
    mover.edit("pipelines/orders.yaml", OFFSETS, line)
    return line


@pytest.mark.thorough
def test_the_pipeline_goes_on_exactly_where_the_checkpoint_ended_and_a_new_job_where_the_pipeline_ended(
    mover: Mover,
) -> None:
    assert json.loads(ended(mover)) == {"orders": {"0": 45, "1": 45}}
    mover.produce(40)
    dry_run = mover.type(DRY_RUN)
    assert "[45, 65)" in dry_run
    checked = mover.type(RUN)
    old, new = mover.of_job("old/orders"), mover.of_pipeline()
    assert new == Counter((partition, offset) for partition in (0, 1) for offset in range(45, 65))
    assert old + new == mover.everything(), "no record is missing, none is there twice"
    assert re.findall(r"│ +(\d) │ +(\d+) │ +(\d+) │ +(\d+) │", checked) == [
        (str(partition), *["65"] * 3) for partition in (0, 1)
    ]

    starting: dict[str, Any] = json.loads(mover.type(WAY_BACK).splitlines()[-1])
    assert starting == {"orders": {"0": 65, "1": 65}}
    mover.produce(10)
    mover.edit("orders_stream.py", '"startingOffsets", "earliest"', f'"startingOffsets", """{json.dumps(starting)}"""')
    mover.edit("orders_stream.py", "old/checkpoint", "new/checkpoint")
    mover.type(JOB)
    lost = Counter((partition, offset) for partition in (0, 1) for offset in range(65, 70))
    assert mover.of_job("old/orders") + mover.of_pipeline() == mover.everything() - lost, (
        "with the output folder of before the first batch is left out, since its number is known there"
    )
    mover.edit("orders_stream.py", "new/checkpoint", "newer/checkpoint")
    mover.edit("orders_stream.py", "old/orders", "new/orders")
    mover.type(JOB)
    assert mover.of_job("old/orders") + mover.of_pipeline() + mover.of_job("new/orders") == mover.everything()


@pytest.mark.thorough
def test_a_trial_beside_the_job_has_its_rows_and_a_dead_letter_for_each_row_of_nulls(mover: Mover) -> None:
    mover.produce(60)
    mover.type(JOB)
    mover.produce(20)  # the job has not seen these
    mover.save("pipelines/orders-trial.yaml", "compare.py")
    compared = mover.type(TRIAL)
    assert "60 rows of the job, 59 of the trial up to {'0': 30, '1': 30}" in compared
    assert f"only the job has: [(1, {NO_JSON // 2}, None, None, None)]" in compared
    assert "only the trial has: []" in compared
    assert "not JSON" in compared
    mover.type(END_TRIAL)


@pytest.mark.skipif(
    version("pyspark") >= "4.1",
    reason="Spark 4.1.1 fails in its own ProgressReporter at such a batch",
)
@pytest.mark.thorough
def test_a_batch_without_a_commit_is_ended_by_another_start_and_changes_no_offsets(mover: Mover) -> None:
    line = ended(mover)
    checkpoint = mover.folder / "old" / "checkpoint"
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()  # as if the job had died before it
    assert mover.type(ENDS).strip() != line
    mover.produce(10)
    mover.type(JOB)
    assert sorted(file.name for file in (checkpoint / "commits").glob("[0-9]*")) == ["0", "1", "2"]
    assert mover.of_job("old/orders") == mover.everything()
    assert json.loads(mover.type(ENDS)) == {"orders": {"0": 50, "1": 50}}


@pytest.mark.thorough
def test_spark_sees_no_file_that_others_put_into_the_folder_of_a_job(mover: Mover) -> None:
    mover.produce(20)
    mover.type(JOB)
    first = next((mover.folder / "old/orders").glob("day=2024-03-01/*.parquet"))
    (first.parent / "another.parquet").write_bytes(first.read_bytes())
    count = "print(SparkSession.builder.getOrCreate().read.parquet('old/orders').count())"
    assert mover.type(f'python -c "from pyspark.sql import SparkSession; {count}"').split()[-1] == "20"
    assert sum(mover.of_job("old/orders").values()) > 20, "other readers see them"
