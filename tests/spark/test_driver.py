"""The driver on a local master: where it listens, what it leaves in the current folder, what it tells meanwhile."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sandbox.bootstrap.jars import java as find_java
from tidemark.spark import jobs
from tidemark.spark.jobs import end_job, tagged
from tidemark.spark.session import with_own_properties

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
    pytest.mark.timeout(600),  # a session takes 10 s, ten times that on a busy machine
]


def test_a_driver_on_a_local_master_listens_on_loopback_only_and_leaves_nothing_in_the_current_folder(
    session: SparkSession, driver_folder: Path
) -> None:
    session.range(3).count()
    gateway = session.sparkContext._gateway
    assert gateway is not None
    jvm = psutil.Process(gateway.proc.pid)
    addresses = {each.laddr.ip for each in jvm.net_connections("inet") if each.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert Path(jvm.cwd()) == driver_folder
    assert list(driver_folder.iterdir()) == []


def test_a_session_opens_without_pysparks_tools_for_tests_and_whatever_spark_home_says(tmp_path: Path) -> None:
    program = (
        "import sys; from tidemark.spark.session import open_session; session = open_session('local[1]', None);"
        "session.range(1).mapInArrow(lambda batches: batches, 'id bigint').collect();"
        "print(sorted({'pandas', 'grpc', 'unittest', 'pyspark.testing'} & set(sys.modules)))"
    )
    environment = {**os.environ, "SPARK_HOME": str(tmp_path / "another-spark")}
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, env=environment)
    assert done.stdout == "[]\n", done.stderr


def test_the_settings_of_a_cluster_are_named_when_they_keep_spark_from_starting(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.submit.deployMode cluster\n")
    program = (
        "import sys; from pathlib import Path; from tidemark.errors import WorkFailed\n"
        "from tidemark.spark.session import open_session\n"
        "try: open_session('local[1]', None, Path(sys.argv[1]))\n"
        "except WorkFailed as error: print(error.what, error.next_step)"
    )
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program, str(tmp_path / "spark.log")]
    done = subprocess.run(command, text=True, capture_output=True, env=environment)
    assert "deploy mode" in done.stdout.lower(), done.stdout + done.stderr
    assert "SPARK_CONF_DIR" in done.stdout


def test_what_a_jvm_without_memory_writes_to_standard_output_stands_in_the_log_and_in_the_error(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f"""#!/bin/sh
case "$*" in *org.apache.spark.launcher.Main*) exec {find_java()} "$@" ;; esac
echo "# There is insufficient memory for the Java Runtime Environment to continue."
exit 1
"""
    )
    java.chmod(0o755)
    program = (
        "import json, sys; from pathlib import Path; from tidemark.errors import WorkFailed\n"
        "from tidemark.spark.session import open_session\n"
        "try: open_session('local[1]', None, Path(sys.argv[1]))\n"
        "except WorkFailed as error: print(json.dumps([error.what, error.next_step]))"
    )
    log = tmp_path / "spark.log"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program, str(log)], text=True, capture_output=True, env=environment)
    what, next_step = json.loads(done.stdout)
    assert "its log: There is insufficient memory for the Java Runtime" in what
    assert next_step.startswith("let Java have memory and threads")
    assert "insufficient memory" in log.read_text()


def test_a_job_tells_how_many_of_its_tasks_are_done(session: SparkSession) -> None:
    lines: list[str] = []

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # in here it is pickled whole
        time.sleep(2)
        yield from batches

    with tagged(session, "slow"), jobs.report_jobs(session, "slow", lines.append, every=0.2):
        session.range(4, numPartitions=4).mapInArrow(slowly, "id BIGINT").collect()
    assert any("of 4 tasks of Spark done, " in line for line in lines), lines
    assert all(line.startswith("after ") for line in lines)
    lines.clear()
    time.sleep(0.5)
    assert lines == [], "it ends with the job"


def test_a_job_is_ended_by_its_tag_and_others_of_the_session_go_on(session: SparkSession) -> None:
    ended: dict[str, str] = {}

    def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(5)
        yield from batches

    def work(tag: str) -> None:
        own = with_own_properties(session)
        try:
            with tagged(own, tag):
                ended[tag] = str(own.range(1, numPartitions=1).mapInArrow(slowly, "id BIGINT").count())
        except Exception as error:
            ended[tag] = str(error)

    threads = [threading.Thread(target=work, args=[tag]) for tag in ("one", "two")]
    for thread in threads:
        thread.start()
    while threads[0].is_alive():
        end_job(session, "one")
        threads[0].join(0.2)
    assert "cancelled" in ended["one"]
    threads[1].join()
    assert ended["two"] == "1"


def test_what_a_slice_sets_does_not_hold_for_the_others(session: SparkSession) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    session.conf.set(name, "77")
    first, second = with_own_properties(session), with_own_properties(session)
    assert first.conf.get("spark.sql.session.timeZone") == "UTC"
    first.conf.set(name, "5")
    assert (first.conf.get(name), second.conf.get(name), session.conf.get(name)) == ("5", "77", "77")
