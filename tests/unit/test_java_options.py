"""What Tidemark says to the JVM of a driver on this machine, and what it leaves to the user."""

import os
from pathlib import Path

import pytest

from tidemark.spark import classes
from tidemark.spark.classes import class_archive
from tidemark.spark.java import FEW_CORES, FEW_RECORDS, VARIABLES, java_options

ONE_COMPILER, SERIAL = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # what a machine of another size would get
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_jvm_for_a_job_of_few_records_has_one_compiler_and_the_collector_for_few_cores() -> None:
    assert java_options("", 0).split() == [ONE_COMPILER, SERIAL]
    assert java_options("", FEW_RECORDS).split() == [ONE_COMPILER, SERIAL]


def test_a_jvm_for_many_records_or_many_jobs_keeps_both_compilers() -> None:
    assert java_options("", FEW_RECORDS + 1).split() == [SERIAL]
    assert java_options("", None).split() == [SERIAL]


def test_the_collector_for_few_cores_is_left_out_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: FEW_CORES + 1)
    assert java_options("", 0).split() == [ONE_COMPILER]


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("-Dname=text -Xss2m", [ONE_COMPILER, SERIAL]),
        ("-XX:+UseG1GC", [ONE_COMPILER]),
        ("-XX:+UseParallelGC", [ONE_COMPILER]),
        ("-XX:TieredStopAtLevel=4", [SERIAL]),
        ("-XX:-TieredCompilation", [SERIAL]),
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
    assert java_options("-Dname=text", None, ARCHIVE) == f"{SERIAL} {SHARED} -Dname=text"


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=/mine.jsa", "-Xshare:off", "-XX:ArchiveClassesAtExit=/mine"])
def test_an_archive_of_the_user_wins(given: str) -> None:
    assert java_options(given, None, ARCHIVE) == f"{SERIAL} {given}"


def test_an_archive_is_used_only_whole_and_for_the_java_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars, java = tmp_path / "jars" / "spark", tmp_path / "java" / "bin" / "java"
    for folder in (jars, java.parent):
        folder.mkdir(parents=True)
    java.write_text("one")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert class_archive(None) is None
    assert class_archive(jars) is None
    archive = jars.parent / f"spark-classes-{classes._made_from()}-4.jsa"
    archive.write_bytes(b"1234")
    assert class_archive(jars) == archive
    archive.write_bytes(b"123")
    assert class_archive(jars) is None, "a file that is cut short would crash the JVM"
    archive.write_bytes(b"1234")
    java.write_text("another")
    assert class_archive(jars) is None
