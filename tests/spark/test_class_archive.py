"""How the JVM of a driver starts that nobody else gave options to; with the archive of classes that
``tidemark spark classes`` makes, in a checkout beside the first run that wants it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.bootstrap.jars import java
from tidemark.spark.classes import class_archive
from tidemark.spark.jars import fitting_jars
from tidemark.spark.java import java_options
from tidemark.spark.session import class_path, spark_configuration

pytestmark = pytest.mark.timeout(600)  # a start of Spark takes 10 s, ten times that on a busy machine
SOURCE = "source: shared objects file (top)"  # Java's word for a class from the archive of an application
READS_KAFKA = "org.apache.kafka.clients.consumer.KafkaConsumer"
JOB = """
import sys
from pathlib import Path
import psutil
from tidemark.spark.session import open_session

session = open_session("local[1]", Path(sys.argv[1]), conf={"spark.driver.extraJavaOptions": sys.argv[2]})
session.sparkContext._jvm.java.lang.Class.forName(sys.argv[3])
print(session.range(3).count(), *psutil.Process(session.sparkContext._gateway.proc.pid).cmdline(), sep="\\n")
"""


def archive_of(jars: Path) -> Path | None:
    return class_archive(jars, class_path(spark_configuration(jars)))


def spark(jars: Path, options: str, folder: Path) -> list[str]:
    """A job in a JVM with these options besides ours; returns the lines of standard output: 3, the JVM's words."""
    command = [sys.executable, "-c", JOB, str(jars), options, READS_KAFKA]
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=variables)
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_a_jvm_of_few_records_has_one_compiler_and_takes_classes_of_spark_and_kafka_from_the_archive(
    spark_jars: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "sandbox.bootstrap.classes"], check=True, cwd=CHECKOUT)  # waits for it
    log, archive = tmp_path / "classes.log", archive_of(spark_jars)
    assert archive is not None
    rows, *words = spark(spark_jars, f"-Xlog:class+load:file={log}", tmp_path)
    assert rows == "3"
    assert f"-XX:SharedArchiveFile={archive}" in words
    assert "-XX:TieredStopAtLevel=1" in words
    ours = re.findall(rf"org\.apache\.spark\.\S+ {re.escape(SOURCE)}", log.read_text())
    assert len(ours) > 1_000
    assert f"{READS_KAFKA} {SOURCE}" in log.read_text()


@pytest.mark.thorough
def test_the_command_makes_an_archive_once(spark_jars: Path, tmp_path: Path) -> None:
    jars = tmp_path / "jars" / "spark"
    jars.mkdir(parents=True)
    for jar in fitting_jars(spark_jars).glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    command = [sys.executable, "-m", "tidemark.cli", "spark", "classes", "--json"]
    variables = {**os.environ, "TIDEMARK_SPARK_JARS": str(jars), "TIDEMARK_HOME": str(tmp_path)}
    made = [subprocess.run(command, capture_output=True, text=True, check=True, env=variables) for _ in range(2)]
    [archive] = jars.parent.glob("spark-classes-*")
    assert [json.loads(each.stdout) for each in made] == [{"archive": str(archive)}] * 2
    assert ["Java stores the classes" in each.stderr for each in made] == [True, False], "the second finds it"
    assert archive_of(jars) == archive


def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(spark_jars: Path) -> None:
    command = [java(), "-cp", "/nowhere", *java_options("", None, archive_of(spark_jars)).split(), "-version"]
    done = subprocess.run([word.replace("'", "") for word in command], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "shared" not in done.stderr
    assert "version" in done.stderr
