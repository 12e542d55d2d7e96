"""The class path of a driver on this machine: the connectors', unless the user has one."""

from pathlib import Path

import pytest

from tidemark.spark.java import VARIABLES
from tidemark.spark.session import driver_configuration

CONNECTORS = "/jars/one.jar,/jars/two.jar"
PROPERTIES = {"spark.jars": CONNECTORS, "spark.app.name": "x"}


@pytest.fixture(autouse=True)
def no_class_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("master", "jars"), [("local[2]", None), ("spark://host:7077", CONNECTORS)])
def test_a_driver_has_the_connectors_on_its_class_path_and_executors_on_other_machines_fetch_them(
    tmp_path: Path, master: str, jars: str | None
) -> None:
    properties = driver_configuration(master, tmp_path, PROPERTIES, 0, None)
    assert properties["spark.driver.extraClassPath"] == "/jars/one.jar:/jars/two.jar"
    assert properties.get("spark.jars") == jars
    assert properties["spark.app.name"] == "x"
    assert ("spark.io.mode.default" in properties) == (jars is None)


def test_a_class_path_of_the_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**PROPERTIES, "spark.driver.extraClassPath": "/mine"}
    assert given.items() <= driver_configuration("local[2]", tmp_path, given, 0, None).items()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.master local\nspark.driver.extraClassPath=/mine\n")
    properties = driver_configuration("local[2]", tmp_path, PROPERTIES, 0, None)
    assert "spark.driver.extraClassPath" not in properties
    assert properties["spark.jars"] == CONNECTORS
    (tmp_path / "spark-defaults.conf").write_text("spark.master local\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-class-path /mine pyspark-shell")
    assert driver_configuration("local[2]", tmp_path, PROPERTIES, 0, None)["spark.jars"] == CONNECTORS
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    assert "spark.jars" not in driver_configuration("local[2]", tmp_path, PROPERTIES, 0, None)


@pytest.mark.parametrize("jars", ["/my:jars/one.jar", "s3a://jars/one.jar", "/jars/*.jar"])
def test_what_only_spark_can_resolve_is_on_no_class_path(tmp_path: Path, jars: str) -> None:
    given = {"spark.jars": jars}
    assert given.items() <= driver_configuration("local[2]", tmp_path, given, 0, None).items()
    assert "spark.driver.extraClassPath" not in driver_configuration("local[2]", tmp_path, given, 0, None)
