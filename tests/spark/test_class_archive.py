"""How the JVM of a driver starts that nobody else gave options to; with the archive of classes that `make setup` and
``tidemark spark-classes`` make."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.spark.classes import class_archive

pytestmark = pytest.mark.timeout(600)  # two starts of Spark, 10 s each, ten times that on a busy machine
SOURCE = "source: shared objects file (top)"  # Java's word for a class from the archive of an application
JOB = """
import sys
from pathlib import Path
import psutil
from tidemark.spark.session import open_session

session = open_session("local[1]", Path(sys.argv[1]), conf={"spark.driver.extraJavaOptions": sys.argv[2]})
print(session.range(3).count(), *psutil.Process(session.sparkContext._gateway.proc.pid).cmdline(), sep="\\n")
"""


def spark(jars: Path, options: str, folder: Path) -> list[str]:
    """A job in a JVM with these options besides ours; returns the lines of standard output: 3, the JVM's words."""
    command = [sys.executable, "-c", JOB, str(jars), options]
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=variables)
    return done.stdout.splitlines()


def test_the_command_makes_an_archive_once_and_a_jvm_takes_most_of_sparks_classes_from_it(
    spark_jars: Path, tmp_path: Path
) -> None:
    jars = tmp_path / "jars" / "spark"
    jars.mkdir(parents=True)
    for jar in spark_jars.glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    command = [sys.executable, "-m", "tidemark.cli", "spark-classes", "--json"]
    variables = {**os.environ, "TIDEMARK_SPARK_JARS": str(jars)}
    made = [subprocess.run(command, capture_output=True, text=True, check=True, env=variables) for _ in range(2)]
    [archive] = jars.parent.glob("spark-classes-*")
    assert [json.loads(each.stdout) for each in made] == [{"archive": str(archive)}] * 2
    assert ["Java stores the classes" in each.stderr for each in made] == [True, False], "the second finds it"
    assert class_archive(jars) == archive

    log = tmp_path / "classes.log"
    rows, *words = spark(jars, f"-Xlog:class+load:file={log}", tmp_path)
    assert rows == "3"
    assert f"-XX:SharedArchiveFile={archive}" in words
    assert "-XX:TieredStopAtLevel=1" in words, "a job of few records"
    ours = re.findall(rf"org\.apache\.spark\.\S+ {re.escape(SOURCE)}", log.read_text())
    assert len(ours) > 1_000


def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(spark_jars: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsa"
    (tmp_path / "Main.java").write_text("class Main { public static void main(String[] words) {} }")
    java = ["java", "-cp", str(tmp_path), f"-XX:ArchiveClassesAtExit={other}", str(tmp_path / "Main.java")]
    subprocess.run(java, check=True, capture_output=True)
    options = f"-XX:SharedArchiveFile={other} -Xlog:cds=off -Xlog:cds+dynamic=off"
    rows, java_word, *words = spark(spark_jars, options, tmp_path)
    assert rows == "3"
    assert java_word.endswith("java"), "the second line is the first word of the JVM's own command line"
    assert f"-XX:SharedArchiveFile={other}" in words
