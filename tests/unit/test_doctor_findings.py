"""How checks are run and what they say of a machine; what they say of real services is in tests/integration."""

import errno
import json
import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.pipeline_text import changed
from tidemark.cli.main import main
from tidemark.doctor import folders, machine
from tidemark.doctor.checks import Check, examine
from tidemark.environment import Environment
from tidemark.errors import Unavailable
from tidemark.model import findings
from tidemark.model.findings import Finding, Severity, clock, ok
from tidemark.pipeline.loader import load
from tidemark.sources.registry import connectors
from tidemark.spark import jars

INSTALLED = version("pyspark")


def run(*checks: Check) -> list[Finding]:
    return list(examine(checks, begin=lambda _: None))


def test_a_check_that_fails_or_hangs_hides_neither_its_own_findings_nor_other_checks() -> None:
    def refused() -> Iterator[Finding]:
        yield ok("one", "the door is there")
        raise Unavailable("nobody answers", next_step="knock")

    def hangs() -> Iterator[Finding]:
        yield ok("two", "the line is there")
        time.sleep(60)

    started = time.monotonic()
    findings_of_checks = run(
        Check("one", refused), Check("two", hangs, 2.0), Check("three", lambda: [ok("three", "well")])
    )
    assert time.monotonic() - started < 30
    assert [(finding.check, finding.severity) for finding in findings_of_checks] == [
        ("one", Severity.OK), ("one", Severity.FAILED), ("two", Severity.OK), ("two", Severity.FAILED),
        ("three", Severity.OK),
    ]  # fmt: skip
    assert (findings_of_checks[1].message, findings_of_checks[1].next_step) == ("nobody answers", "knock")
    assert "no answer within 2 s" in findings_of_checks[3].message


def test_a_check_that_is_late_says_what_to_do_of_its_own() -> None:
    def hangs() -> Iterator[Finding]:
        time.sleep(60)
        yield ok("server", "it answers")

    [server] = run(Check("server", hangs, 0.1, "wait for its jobs"))
    assert (server.message, server.next_step) == ("no answer within 0 s", "wait for its jobs")


def test_an_error_that_is_not_ours_is_named_by_its_kind_and_never_quoted() -> None:
    def broken() -> Iterator[Finding]:
        raise ValueError("postgresql://user:canary@host")
        yield

    [finding] = run(Check("one", broken))
    assert finding.severity is Severity.FAILED
    assert "ValueError" in finding.message
    assert "canary" not in f"{finding}"


def test_a_check_hears_of_its_begin_before_it_runs() -> None:
    heard: list[str] = []
    checks = [Check("a", lambda: [ok("a", "x")]), Check("b", list)]
    for finding in examine(checks, lambda check: heard.append(check.name)):
        assert heard == [finding.check]
    assert heard == ["a", "b"]


@pytest.mark.parametrize(
    ("ahead", "severity", "text"),
    [(0.3, Severity.OK, "within 0.3 s"), (-5.0, Severity.OK, "within 5.0 s"),
     (3600.0, Severity.WARNING, "3,600 s ahead of"), (-60.0, Severity.WARNING, "60 s behind")],
)  # fmt: skip
def test_a_clock_that_is_off_is_told_with_seconds_and_direction(ahead: float, severity: Severity, text: str) -> None:
    finding = clock("database", "the database", ahead)
    assert (finding.severity, text in finding.message) == (severity, True)


def java(folder: Path, version: str, modules: str) -> str:
    """A JAVA_HOME whose java says what it is told to."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    answer = f'echo "java.specification.version = {version}" >&2'
    program.write_text(f'#!/bin/sh\ncase "$1" in --list-modules) echo {modules};; *) {answer};; esac\n')
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("version", "modules", "severity", "text"),
    [("17", "jdk.incubator.vector@17", Severity.OK, "17 at "),
     ("11", "jdk.incubator.vector", Severity.FAILED, "is Java 11"),
     ("21", "java.base", Severity.FAILED, "lacks the module jdk.incubator.vector")],
)  # fmt: skip
def test_java_must_be_one_that_spark_starts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, modules: str, severity: Severity, text: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version, modules))
    [finding] = machine.java()
    assert finding.severity is severity
    assert text in finding.message


def test_a_java_that_is_not_there_is_said_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [finding] = machine.java()
    assert finding.severity is Severity.FAILED
    assert str(tmp_path) in finding.message


@pytest.mark.parametrize(
    ("versions", "severity", "text"),
    [([INSTALLED], Severity.OK, INSTALLED), (["3.5.1"], Severity.FAILED, " is for 3.5.1: "),
     (["3.5.1", INSTALLED], Severity.FAILED, f" is for 3.5.1, {INSTALLED}: "), ([], Severity.FAILED, "is not in")],
)  # fmt: skip
def test_jars_must_have_the_version_of_pyspark(
    tmp_path: Path, versions: list[str], severity: Severity, text: str
) -> None:
    [connector] = connectors()
    for name in connector.jars:
        for each in versions:
            (tmp_path / f"{name}-{each}.jar").touch()
    jar_findings = list(jars.findings(tmp_path))
    assert [finding.severity for finding in jar_findings] == [severity, severity]
    assert all(text in finding.message for finding in jar_findings)


def test_pyspark_and_its_client_share_a_folder_and_so_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", {"pyspark": "4.0.0", "pyspark-client": "4.1.0"}.__getitem__)
    [finding] = machine.packages()
    assert finding.severity is Severity.FAILED
    assert "pyspark is 4.0.0 and pyspark-client 4.1.0" in finding.message


def test_room_is_measured_where_a_folder_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [finding] = findings.disk_space("lake", tmp_path / "not" / "yet")
    assert str(tmp_path) in finding.message
    monkeypatch.setattr(findings, "GIB", os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize * 2)
    [finding] = findings.disk_space("lake", tmp_path)
    assert finding.severity is Severity.WARNING


def test_what_the_system_refuses_is_no_bug_and_says_what_to_do() -> None:
    def read_only() -> Iterator[Finding]:
        yield ok("one", "well")
        raise OSError(errno.EROFS, "Read-only file system", "/lake/.probe")

    def broken() -> Iterator[Finding]:
        yield ok("two", "well")
        raise KeyError("nobody thought of it")

    _, refused, _, bug = run(Check("one", read_only), Check("two", broken))
    assert refused.message == "Read-only file system: /lake/.probe"
    assert refused.next_step == "mount the disk so that it can be written, then repeat the command"
    assert bug.next_step == "report this bug"


@pytest.mark.parametrize(("topics", "refused"), [("[orders]", False), ("[orders, flights]", True)])
def test_two_pipelines_may_share_a_lake_for_topics_of_their_own(tmp_path: Path, topics: str, *, refused: bool) -> None:
    (tmp_path / "flights.yaml").write_text(changed())
    other = changed(("pipeline: flights", "pipeline: orders"), ("topics: [flights]", f"topics: {topics}"))
    (tmp_path / "orders.yaml").write_text(other)
    environment = Environment("postgresql://127.0.0.1:1/nowhere", tmp_path, tmp_path, None)
    pipelines = [load(tmp_path / f"{name}.yaml") for name in ("flights", "orders")]
    told = run(*folders.checks(environment, pipelines))
    assert [finding.severity for finding in told] == [Severity.FAILED] * (2 if refused else 0)
    assert all("writes topic flights into" in finding.message for finding in told)


@pytest.mark.parametrize(("root", "refused"), [("lake/orders", True), ("lake2", False)])
def test_doctor_and_validate_tell_of_the_same_folders_that_lie_in_each_other(
    tmp_path: Path, root: str, *, refused: bool
) -> None:
    (tmp_path / "flights.yaml").write_text(changed(("      root: lake", f"      root: {tmp_path}/lake")))
    names = ("pipeline: flights", "pipeline: orders"), ("topics: [flights]", "topics: [orders]")
    (tmp_path / "orders.yaml").write_text(changed(*names, ("      root: lake", f"      root: {tmp_path / root}")))
    environment = Environment("postgresql://127.0.0.1:1/nowhere", tmp_path, tmp_path, None)
    pipelines = [load(tmp_path / f"{name}.yaml") for name in ("flights", "orders")]
    told = run(*folders.checks(environment, pipelines))
    assert [finding.severity for finding in told] == [Severity.FAILED] * (2 if refused else 0)
    validated = CliRunner().invoke(main, ["validate", "--json"], env={"TIDEMARK_PIPELINES": str(tmp_path)})
    warned = {line for file in json.loads(validated.stdout) for line in file["warnings"]}
    assert warned == {f"{finding.message}; {finding.next_step}" for finding in told}
    assert all("one lies in the other" in line for line in warned)
