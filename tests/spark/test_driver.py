"""The driver on a local master: where it listens, what it leaves in the current folder, what it tells meanwhile."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.spark import progress

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
    pytest.mark.timeout(600),  # two sessions take 20 s, ten times that on a busy machine
]

OPEN = """
import json, os, psutil
from tidemark.spark.session import open_session
session = open_session("local[1]", None)
session.range(3).count()
jvm = psutil.Process(session.sparkContext._gateway.proc.pid)
addresses = {each.laddr.ip for each in jvm.net_connections("inet") if each.status == psutil.CONN_LISTEN}
print(json.dumps([sorted(addresses), os.listdir()]))
"""


def test_a_driver_on_a_local_master_listens_on_loopback_only_and_leaves_nothing_in_the_current_folder(
    tmp_path: Path,
) -> None:
    told = subprocess.run([sys.executable, "-c", OPEN], cwd=tmp_path, capture_output=True, text=True, check=True)
    addresses, files = json.loads(told.stdout)
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert (files, list(tmp_path.iterdir())) == ([], [])


def test_a_job_tells_how_many_of_its_tasks_are_done(session: SparkSession) -> None:
    lines: list[str] = []

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # in here it is pickled whole
        time.sleep(2)
        yield from batches

    with progress.told(session, lines.append, every=0.2):
        session.range(4, numPartitions=4).mapInArrow(slowly, "id BIGINT").collect()
    assert any("of 4 tasks of Spark done, " in line for line in lines), lines
    assert all(line.startswith("after ") for line in lines)
    lines.clear()
    time.sleep(0.5)
    assert lines == [], "it ends with the job"
