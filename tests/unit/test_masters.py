"""A cluster that does not answer is named before Spark starts."""

from contextlib import closing
from pathlib import Path
from socket import create_server, socket

import pytest

from tidemark.errors import ConfigurationError, Unavailable
from tidemark.spark.masters import check_master, step_to_executors
from tidemark.spark.start_log import not_started

PROPERTY = "<property><name>yarn.resourcemanager.{}</name><value>{}</value></property>"


@pytest.fixture
def silent() -> int:
    """A port of 127.0.0.1 where nothing listens."""
    with closing(socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def yarn_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return tmp_path / "yarn-site.xml"


def write(file: Path, **properties: str) -> None:
    entries = "".join(PROPERTY.format(name.replace("_", "."), value) for name, value in properties.items())
    file.write_text(f"<configuration>{entries}</configuration>")


@pytest.mark.parametrize("master", ["spark://127.0.0.1:{}", "k8s://http://127.0.0.1:{}", "k8s://127.0.0.1:{}"])
def test_a_master_answers_or_is_refused_by_its_address(master: str, silent: int) -> None:
    with closing(create_server(("127.0.0.1", 0))) as server:
        assert check_master(master.format(server.getsockname()[1]))
    with pytest.raises(Unavailable, match=f"127.0.0.1:{silent}: Connection refused"):
        check_master(master.format(silent))


def test_one_of_two_resource_managers_is_enough(yarn_site: Path, silent: int) -> None:
    write(yarn_site, address=f"127.0.0.1:{silent}")
    with pytest.raises(Unavailable, match="the Spark master cannot be reached"):
        check_master("yarn")
    with closing(create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        yarn_site.write_text(
            "<configuration>"
            + PROPERTY.format("ha.rm-ids", "one, two")
            + PROPERTY.format("address.one", f"127.0.0.1:{silent}")
            + PROPERTY.format("address.two", f"127.0.0.1:{port}")
            + "</configuration>"
        )
        assert check_master("yarn")


def test_an_address_that_only_hadoop_can_resolve_is_left_to_it(yarn_site: Path) -> None:
    write(yarn_site, hostname="${my.host}")
    assert not check_master("yarn")


def test_yarn_without_its_settings_is_refused(yarn_site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no yarn-site\.xml in"):
        check_master("yarn")
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(ConfigurationError, match="HADOOP_CONF_DIR or YARN_CONF_DIR is not set"):
        check_master("yarn")


def test_an_address_without_a_port_and_a_damaged_file_are_told_with_what_to_write(yarn_site: Path) -> None:
    for master, form in (("spark://host:x", "spark://host:port"), ("k8s://https://host:x", "k8s://https://host:port")):
        with pytest.raises(ConfigurationError, match=f"{master} is not a Spark master") as caught:
            check_master(master)
        assert form in caught.value.next_step
    write(yarn_site, address="host:x")
    with pytest.raises(ConfigurationError, match="host:x is not the address of a manager") as caught:
        check_master("yarn")
    assert "yarn-site.xml" in caught.value.next_step
    yarn_site.write_text("<configuration>")
    with pytest.raises(ConfigurationError, match=r"yarn-site\.xml cannot be read: "):
        check_master("yarn")


def test_the_next_step_names_the_cluster_that_gives_no_executor() -> None:
    assert "kubectl" in step_to_executors("k8s://https://host")
    assert "resource manager" in step_to_executors("yarn")
    assert "worker" in step_to_executors("spark://host:7077")


@pytest.mark.parametrize(("master", "is_told"), [("local[2]", True), ("yarn", False), ("k8s://https://host", False)])
def test_only_who_wants_no_cluster_is_told_to_leave_it(master: str, is_told: bool) -> None:
    error = not_started(RuntimeError("gone"), master, None, "Error: yarn refused the application")
    assert ("SPARK_CONF_DIR" in error.next_step) is is_told
