"""The jars of Spark's connector fit the PySpark that is installed: what does not fit is named, and fetched."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.unit.test_docs import locked
from tidemark.errors import ConfigurationError
from tidemark.spark.jars import wanted_jars
from tidemark.spark.session import spark_configuration

pytestmark = pytest.mark.thorough

NAMES = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
INSTALLED = locked("pyspark")
Type = Callable[..., "subprocess.CompletedProcess[str]"]


def put(folder: Path, version: str) -> None:
    """Names of jars are enough for who only looks at versions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}-{version}.jar").touch()


def install(site: Path, version: str) -> None:
    """A PySpark of this version, as far as pip's metadata say so."""
    for older in site.glob("pyspark-*"):
        (older / "METADATA").unlink()
        older.rmdir()
    folder = site / f"pyspark-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyspark\nVersion: {version}\n")


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    return tmp_path / "jars" / "spark"


@pytest.fixture
def typed(tmp_path: Path, jars: Path) -> Type:
    site = tmp_path / "site"

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        variables = {**os.environ, "TIDEMARK_SPARK_JARS": str(jars), "TIDEMARK_HOME": str(tmp_path), "PYTHONPATH": path}
        command = [sys.executable, "-m", "tidemark.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path)

    return run


def jar_findings(typed: Type) -> Sequence[tuple[str, str, str]]:
    """(severity, message, next step) of each finding about the jars."""
    findings = json.loads(typed("doctor", "--json").stdout)
    return [
        (each["severity"], each["message"], each["next_step"] or "")
        for each in findings
        if each["check"] == "spark jars"
    ]


def test_jars_of_another_version_are_named_and_fitting_ones_fetched_once(
    tmp_path: Path, jars: Path, typed: Type
) -> None:
    install(tmp_path / "site", INSTALLED)
    put(jars, "3.5.1")
    first, second = jar_findings(typed)
    assert first[:2] == ("failed", f"PySpark {INSTALLED} is installed, {NAMES[0]} is for 3.5.1: {jars}")
    assert second[:2] == ("failed", f"PySpark {INSTALLED} is installed, {NAMES[1]} is for 3.5.1: {jars}")
    assert first[2].startswith("tidemark spark jars fetches the jars")
    done = typed("spark", "jars", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"jars": str(jars / INSTALLED)}), done.stderr
    assert {path.name for path in (jars / INSTALLED).iterdir()} == {jar.file_name for jar in wanted_jars()}
    assert [(severity, message) for severity, message, _ in jar_findings(typed)] == [
        ("ok", f"{name} {INSTALLED}") for name in NAMES
    ]
    before = {path: path.stat().st_mtime_ns for path in (jars / INSTALLED).iterdir()}
    assert typed("spark", "jars").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (jars / INSTALLED).iterdir()} == before


def test_a_pyspark_without_known_jars_is_named_with_one_that_has_some(tmp_path: Path, jars: Path, typed: Type) -> None:
    install(tmp_path / "site", "4.1.4")
    put(jars / "4.0.0", "4.0.0")
    [(severity, message, step), _] = jar_findings(typed)
    assert severity == "failed"
    assert message == (
        "PySpark 4.1.4 is installed; jars are known for 4.0.0, 4.1.1, 4.2.0, the versions that Tidemark was run with"
    )
    assert step.startswith("pip install pyspark==4.1.1 ")
    assert step.endswith(", then: tidemark spark jars")
    refused = typed("spark", "jars")
    assert refused.returncode == 2
    assert message in refused.stderr
    install(tmp_path / "site", "4.1.1")
    assert typed("spark", "jars").returncode == 0
    assert [severity for severity, _, _ in jar_findings(typed)] == ["ok", "ok"]


def test_a_repository_without_the_jars_leaves_nothing_behind(tmp_path: Path, jars: Path, typed: Type) -> None:
    install(tmp_path / "site", INSTALLED)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = typed("spark", "jars", "--repository", empty.as_uri())
    assert done.returncode == 1
    assert "could not be fetched" in done.stderr
    assert "--repository" in done.stderr
    assert list(jars.iterdir()) == []


def test_a_jar_with_another_content_is_refused(tmp_path: Path, jars: Path, typed: Type) -> None:
    install(tmp_path / "site", INSTALLED)
    repository = tmp_path / "repository"
    for jar in wanted_jars():
        path = repository.joinpath(*jar.organisation.split("."), jar.name, jar.revision, jar.file_name)
        path.parent.mkdir(parents=True)
        path.write_text("other")
    done = typed("spark", "jars", "--repository", repository.as_uri())
    assert done.returncode == 1
    assert "another content" in done.stderr
    assert list(jars.iterdir()) == []


def test_no_spark_starts_with_jars_of_another_version(jars: Path) -> None:
    put(jars, "3.5.1")
    with pytest.raises(ConfigurationError, match=r"is for 3\.5\.1"):
        spark_configuration(jars)
