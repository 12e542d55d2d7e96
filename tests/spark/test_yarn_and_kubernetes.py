"""Executors in containers of YARN, and in pods of Kubernetes: the driver is the process of the command (client mode).

As on the standalone cluster, executors have neither our checkout nor our environment.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import STATE
from sandbox.services.kubernetes import KubernetesCluster
from sandbox.services.kubernetes_api import FORBIDDEN
from sandbox.services.processes import wait_until
from sandbox.services.yarn import YarnCluster
from tests.worlds import on_cluster
from tests.worlds.on_cluster import START, assert_logic_and_avro, end, with_logic_and_avro
from tests.worlds.table_world import TableWorld
from tests.worlds.world import wait_stopped

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]
IMPATIENT = "from tidemark.spark import jobs; jobs.PATIENCE_S = 5; from tidemark.cli.main import main; main()"
HASTY = "from tidemark.spark import session; session.ADMITTED_S = 20; from tidemark.cli.main import main; main()"
Cluster = YarnCluster | KubernetesCluster


@pytest.fixture(scope="session", params=[YarnCluster, KubernetesCluster])
def cluster(request: pytest.FixtureRequest, services: Path, warehouse: str) -> Iterator[Cluster]:
    with request.param(services, STATE, {"AIRFLOW_CONN_WAREHOUSE": warehouse}) as started:
        yield started


def start(world: TableWorld, cluster: Cluster, *words: str, failpoint: str = "") -> "subprocess.Popen[str]":
    return on_cluster.start(world, cluster.master, *words, failpoint=failpoint, **cluster.environment)


def succeed(world: TableWorld, cluster: Cluster, *words: str) -> str:
    process = start(world, cluster, *words)
    out, printed = end(process)
    assert process.returncode == 0, out + printed
    return out


def assert_nothing_runs(cluster: Cluster) -> None:
    wait_until(lambda: not cluster.executors() and not cluster.at_work(), "the executors to end", timeout=START)


def test_an_executor_that_dies_is_replaced_and_a_replay_makes_the_same(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    world = make_cluster_world(**cluster.conf)
    process = start(world, cluster, "run", "demo", failpoint="stage.mid:stop")
    wait_stopped(process, timeout=START)
    killed = cluster.executors()
    os.kill(killed[0], signal.SIGKILL)
    os.killpg(process.pid, signal.SIGCONT)
    _, printed = end(process)
    assert process.returncode == 0, printed
    [manifest] = world.json("manifests", "demo")
    assert manifest["published_attempt"] == 1, "Spark did the tasks again; the attempt is one"
    world.assert_complete()
    succeed(world, cluster, "replay", "demo", "--manifest", str(manifest["id"]))
    world.assert_complete()
    assert_nothing_runs(cluster)


def test_a_driver_that_dies_leaves_executors_that_end_and_a_retry_ships_logic_and_decoders_again(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    world = make_cluster_world(**cluster.conf)
    with_logic_and_avro(world)
    process = start(world, cluster, "run", "demo", failpoint="stage.mid:kill9")
    process.communicate(timeout=START)
    assert process.returncode == -signal.SIGKILL
    world.assert_whole()
    succeed(world, cluster, "retry", "demo")
    assert_logic_and_avro(world)
    assert_nothing_runs(cluster)


def test_the_doctor_asks_every_executor(make_cluster_world: Callable[..., TableWorld], cluster: Cluster) -> None:
    world = make_cluster_world(**cluster.conf)
    world.lake.mkdir()
    findings = json.loads(succeed(world, cluster, "doctor", "demo", "--json"))
    assert {finding["severity"] for finding in findings if finding["check"].startswith("executor")} == {"ok"}
    assert "2 of 2 answered" in " ".join(finding["message"] for finding in findings if finding["check"] == "executors")
    assert list(world.lake.iterdir()) == []


def test_the_doctor_names_what_is_missing_before_a_run(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    missing = {
        YarnCluster: ({"spark.pyspark.python": "/nowhere/python"}, "/nowhere/python"),
        KubernetesCluster: ({"spark.kubernetes.namespace": FORBIDDEN}, "pods is forbidden"),
    }
    conf, words = missing[type(cluster)]
    world = make_cluster_world(**{**cluster.conf, **conf})
    process = start(world, cluster, "doctor", "demo", "--json")
    out, printed = end(process)
    assert process.returncode == 1, out + printed
    [failed] = [finding for finding in json.loads(out) if finding["severity"] == "failed"]
    assert (failed["check"], words in failed["message"], bool(failed["next_step"])) == ("executors", True, True), failed


def test_a_queue_without_room_for_an_application_ends_the_start(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    if not isinstance(cluster, YarnCluster):
        pytest.skip("a driver in client mode has no application master on Kubernetes")
    world = make_cluster_world(**cluster.conf)
    process = start(world, cluster, "run", "demo", failpoint="stage.mid:stop")
    wait_stopped(process, timeout=START)
    hasty = subprocess.Popen(
        [sys.executable, "-c", HASTY, "doctor", "demo", "--json"],
        env=world.environment(SPARK_LOCAL_IP="127.0.0.1", TIDEMARK_SPARK_MASTER="yarn", **cluster.environment),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    world.started.append(hasty)
    out, printed = end(hasty)
    assert hasty.returncode == 1, out + printed
    assert "YARN had no room for an application within 20 s" in out
    assert "yarn application -list" in out
    os.killpg(process.pid, signal.SIGCONT)
    _, printed = end(process)
    assert process.returncode == 0, printed
    world.assert_complete()
    assert_nothing_runs(cluster)


def test_a_cluster_without_room_ends_the_attempt(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    world = make_cluster_world(**{**cluster.conf, "spark.executor.memory": "2500m"})
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, "run", "demo", "--master", cluster.master],
        env=world.environment(SPARK_LOCAL_IP="127.0.0.1", **cluster.environment),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    world.started.append(process)
    _, printed = end(process)
    assert process.returncode == 1
    assert "Spark had no executor for 5 s" in printed
    world.assert_whole()
    assert_nothing_runs(cluster)
    world.ok("retry", "demo")
    world.assert_complete()
