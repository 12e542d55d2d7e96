"""What Tidemark says to the JVM of a driver on this machine, and what it leaves to the user."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from sandbox.bootstrap.jars import java
from tidemark.spark import classes
from tidemark.spark.classes import class_archive
from tidemark.spark.java import FEW_CORES, FEW_RECORDS, LATE_COMPILER, VARIABLES, java_options

ONE_COMPILER, SERIAL, YOUNG = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn64m"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # what a machine of another size would get
    for name in (*VARIABLES, "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


def test_a_jvm_for_a_job_of_few_records_has_one_compiler_and_the_collector_for_few_cores() -> None:
    assert java_options("", 0).split() == [ONE_COMPILER, SERIAL, YOUNG]
    assert java_options("", FEW_RECORDS).split() == [ONE_COMPILER, SERIAL, YOUNG]


def test_a_jvm_for_many_records_or_many_jobs_has_the_second_compiler_for_what_is_called_most() -> None:
    expected = f"{LATE_COMPILER} {SERIAL} {YOUNG}"
    assert java_options("", FEW_RECORDS + 1) == expected
    assert java_options("", None) == expected


def test_java_knows_the_limits_of_its_second_compiler() -> None:
    command = [java(), *LATE_COMPILER.split(), "-XX:+PrintFlagsFinal", "-version"]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for word in LATE_COMPILER.split():
        name, _, value = word.removeprefix("-XX:").partition("=")
        assert re.search(rf"\b{name} += {value} ", flags)


def test_the_collector_for_few_cores_is_left_out_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: FEW_CORES + 1)
    assert java_options("", 0).split() == [ONE_COMPILER]


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("-Dname=text -Xss2m", [ONE_COMPILER, SERIAL, YOUNG]),
        ("-XX:+UseG1GC", [ONE_COMPILER]),
        ("-XX:+UseParallelGC", [ONE_COMPILER]),
        ("-XX:TieredStopAtLevel=4", [SERIAL, YOUNG]),
        ("-XX:-TieredCompilation", [SERIAL, YOUNG]),
        ("-XX:Tier4CompileThreshold=7 -XX:NewSize=8m", [SERIAL]),
        ("-Xmn100m", [ONE_COMPILER, SERIAL]),
        ("-Xint -XX:+UseZGC", []),
    ],
)
def test_options_of_the_user_win(given: str, ours: list[str]) -> None:
    assert java_options(given, 0).split() == [*ours, *given.split()]


@pytest.mark.parametrize("name", VARIABLES)
def test_options_in_a_variable_of_java_win(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "-XX:+UseG1GC -XX:TieredStopAtLevel=4")
    assert not java_options("", 0)


ARCHIVE = Path("/jars/my classes.jsa")
SHARED = f"-XX:SharedArchiveFile='{ARCHIVE}' -Xlog:cds*=off"


def test_an_archive_of_classes_is_named_and_java_tells_nothing_about_it_on_standard_output() -> None:
    assert java_options("-Dname=text", None, ARCHIVE) == f"{LATE_COMPILER} {SERIAL} {YOUNG} {SHARED} -Dname=text"


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=/mine.jsa", "-Xshare:off", "-XX:ArchiveClassesAtExit=/mine"])
def test_an_archive_of_the_user_wins(given: str) -> None:
    assert java_options(given, None, ARCHIVE) == f"{LATE_COMPILER} {SERIAL} {YOUNG} {given}"


def test_an_archive_is_used_only_whole_and_for_the_java_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars, java = tmp_path / "jars" / "spark", tmp_path / "java" / "bin" / "java"
    for folder in (jars, java.parent):
        folder.mkdir(parents=True)
    jar = jars / "connector.jar"
    java.write_text("one")
    jar.write_text("one")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert class_archive(None, str(jar)) is None
    assert class_archive(jars, str(jar)) is None
    archive = jars.parent / f"{classes._prefix()}{classes._made_from(str(jar))}-4.jsa"
    archive.write_bytes(b"1234")
    assert class_archive(jars, str(jar)) == archive
    archive.write_bytes(b"123")
    assert class_archive(jars, str(jar)) is None, "a file that is cut short would crash the JVM"
    archive.write_bytes(b"1234")
    assert class_archive(jars, "") is None, "Java ignores an archive of another class path"
    jar.write_text("another")
    assert class_archive(jars, str(jar)) is None
    archive.rename(jars.parent / f"{classes._prefix()}{classes._made_from(str(jar))}-4.jsa")
    assert class_archive(jars, str(jar)) is not None
    java.write_text("another")
    assert class_archive(jars, str(jar)) is None
