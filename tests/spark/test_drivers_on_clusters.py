"""Drivers in application masters of YARN and in pods of Kubernetes (cluster mode), with orders in a folder that all
share.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.jars import pyspark_jars
from sandbox.services.kubernetes import KubernetesCluster
from sandbox.services.kubernetes_api import FORBIDDEN
from sandbox.services.processes import wait_until
from sandbox.services.yarn import YarnCluster
from tests.worlds import on_cluster
from tests.worlds.on_cluster import (
    START,
    assert_logic_and_avro,
    assert_nothing_but_staging_differs,
    end,
    with_logic_and_avro,
)
from tests.worlds.table_world import TableWorld
from tidemark.environment import Environment
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.deferral import AttemptDeferred
from tidemark.model.manifest import Manifest
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.spark.cluster import DETACHED, Command, OnCluster, name_of, open_orders, spark_submit
from tidemark.spark.orders import ORDER, PROGRESS, find_answer, folder_of

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]
# Room for two applications with one executor each.
SMALL = {
    "spark.driver.memory": "480m", "spark.driver.memoryOverhead": "128m", "spark.executor.instances": "1",
    "spark.executor.memory": "480m", "spark.executor.memoryOverhead": "128m",
}  # fmt: skip
ENVIRONMENT = {YarnCluster: "spark.yarn.appMasterEnv.", KubernetesCluster: "spark.kubernetes.driverEnv."}
LOGS = {YarnCluster: "yarn logs -applicationId application_", KubernetesCluster: "kubectl logs tidemark-demo-manifest-"}
LOOKS = {YarnCluster: "yarn logs -applicationId application_", KubernetesCluster: "kubectl logs tidemark-doctor-"}
KILLED = {YarnCluster: "spark-submit ended with exit status 1", KubernetesCluster: "exit code: 137"}
IN_IMAGE = {  # the package, as in the image of the Dockerfile, beside PySpark
    name: f"{CHECKOUT / 'include'}:{pyspark_jars().parents[1]}"
    for name in (f"{ENVIRONMENT[KubernetesCluster]}PYTHONPATH", "spark.executorEnv.PYTHONPATH")
}
Cluster = YarnCluster | KubernetesCluster


@pytest.fixture(scope="module", params=[YarnCluster, KubernetesCluster])
def cluster(request: pytest.FixtureRequest, services: Path, warehouse: str) -> Iterator[Cluster]:
    with request.param(services, STATE, {"AIRFLOW_CONN_WAREHOUSE": warehouse}) as started:
        yield started


def world_of(
    make: Callable[..., TableWorld], cluster: Cluster, failpoint: str = "", *, in_image: bool = False
) -> TableWorld:
    """A world whose drivers run on the cluster; the first of them reaches the failpoint. ``in_image``: pods have the
    package.
    """
    of_pods = IN_IMAGE if in_image else {"spark.kubernetes.file.upload.path": f"file://{cluster.state}/sent"}
    world = make(**{**cluster.conf, **SMALL, **(of_pods if isinstance(cluster, KubernetesCluster) else {})})
    spark, driver = world.settings["spark"], ENVIRONMENT[type(cluster)]
    armed = {f"{driver}TIDEMARK_FAILPOINT": failpoint, f"{driver}TIDEMARK_HOME": str(world.folder)}
    conf = {**spark["conf"], **(armed if failpoint else {})}
    world.settings["spark"] = {**spark, "engine": "cluster", "orders": str(world.folder / "orders"), "conf": conf}
    world.write_pipeline()
    return world


def start(world: TableWorld, cluster: Cluster, *words: str) -> "subprocess.Popen[str]":
    return on_cluster.start(world, cluster.master, *words, **cluster.environment)


def succeed(world: TableWorld, cluster: Cluster, *words: str) -> None:
    process = start(world, cluster, *words)
    out, printed = end(process)
    assert process.returncode == 0, out + printed


def stopped_drivers(cluster: Cluster) -> list[psutil.Process]:
    """The Python processes of drivers that have stopped at their failpoint."""
    processes = psutil.process_iter(["cmdline", "status"])
    stopped = [process for process in processes if process.info["status"] == psutil.STATUS_STOPPED]
    return [
        process
        for process in stopped
        if "python" in process.info["cmdline"][0]
        and any(word.endswith("application.py") for word in process.info["cmdline"])
        and Path(process.cwd()).is_relative_to(cluster.state)
    ]


def wait_stopped_driver(cluster: Cluster) -> psutil.Process:
    wait_until(lambda: stopped_drivers(cluster), "the driver to stop", timeout=START)
    [driver] = stopped_drivers(cluster)
    return driver


def orders(world: TableWorld) -> list[Path]:
    return [path for path in (world.folder / "orders").rglob("*") if path.is_file()]


def planned(world: TableWorld, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[Context, Manifest, Command]:
    """The only manifest, and the command that starts its driver."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    context = world.context()
    [manifest] = context.database.manifests.find("demo")
    environment = Environment.from_variables(world.environment())
    return context, manifest, spark_submit(cluster.master, environment, context.pipeline.spark)


def wait_idle(cluster: Cluster) -> None:
    wait_until(lambda: not cluster.executors() and not cluster.at_work(), "the applications to end", timeout=START)
    logs = [log.read_text() for log in cluster.state.glob("*/log")]  # of pods
    assert [line for log in logs for line in log.splitlines() if "is forbidden" in line] == []


def test_a_run_and_a_retry_whose_first_driver_was_killed_ship_logic_and_decoders(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    world = world_of(make_cluster_world, cluster, "stage.mid:kill9", in_image=True)
    with_logic_and_avro(world)
    process = start(world, cluster, "run", "demo")
    out, printed = end(process)
    assert process.returncode == 1, out + printed
    assert "the driver on the cluster left no receipt; spark-submit ended with exit status" in printed
    assert KILLED[type(cluster)] in printed
    assert LOGS[type(cluster)] in printed
    world.assert_whole()
    succeed(world, cluster, "retry", "demo")
    assert_logic_and_avro(world)
    wait_idle(cluster)
    assert orders(world) == []


def test_a_driver_whose_attempt_was_killed_wakes_late_and_changes_nothing(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    world = world_of(make_cluster_world, cluster, "stage.mid:stop")
    process = start(world, cluster, "run", "demo")
    driver = wait_stopped_driver(cluster)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=START)
    succeed(world, cluster, "retry", "demo")
    world.assert_complete()
    published = world.json("objects", "demo")
    os.killpg(os.getpgid(driver.pid), signal.SIGCONT)
    wait_idle(cluster)
    [manifest] = world.json("manifests", "demo")
    assert manifest["published_attempt"] == 2
    assert world.json("objects", "demo") == published
    assert_nothing_but_staging_differs(world)
    world.assert_complete()
    assert orders(world) == []


def test_of_two_drivers_of_one_order_the_slower_one_changes_nothing(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(make_cluster_world, cluster, "stage.mid:stop")
    process = start(world, cluster, "run", "demo")
    driver = wait_stopped_driver(cluster)
    [order] = [path for path in orders(world) if path.name == ORDER]
    context, manifest, command = planned(world, cluster, monkeypatch)
    again = subprocess.run(
        command(name_of(Order.from_json(order.read_text())), [str(order)]),
        env=world.environment(**cluster.environment),
        capture_output=True,
    )
    assert again.returncode == 0, again.stderr
    out, printed = end(process)
    assert process.returncode == 0, out + printed
    world.assert_complete()
    published = world.json("objects", "demo")
    os.killpg(os.getpgid(driver.pid), signal.SIGCONT)
    wait_idle(cluster)
    assert world.json("objects", "demo") == published
    assert context.database.manifests.get(manifest.id).attempt == 1
    assert_nothing_but_staging_differs(world)
    world.assert_complete()
    assert orders(world) == []


def test_a_driver_that_nobody_waits_for_is_submitted_and_its_receipt_taken_up(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(make_cluster_world, cluster)
    world.settings["spark"]["conf"] |= DETACHED
    world.write_pipeline()
    world.ok("plan", "demo")
    context, manifest, command = planned(world, cluster, monkeypatch)
    spark = context.pipeline.spark
    place = open_orders(spark, context.lookup, context.database.id())
    with pytest.raises(AttemptDeferred) as deferred:
        process(context, manifest.id, OnCluster(spark, place, command, None, detached=True))
    going_on = deferred.value.deferral
    assert LOGS[type(cluster)] in going_on.log
    assert context.database.manifests.get(manifest.id).alive
    folder = folder_of(going_on.order)
    wait_until(lambda: find_answer(folder) is not None, "the driver to answer", timeout=START)
    receipt = find_answer(folder)
    assert isinstance(receipt, Receipt)
    assert folder.get(PROGRESS) is not None
    process(context, manifest.id, lambda _: receipt, deferral=going_on)
    folder.remove()
    world.assert_complete()
    wait_idle(cluster)
    assert orders(world) == []


def test_a_right_that_is_missing_is_named(make_cluster_world: Callable[..., TableWorld], cluster: Cluster) -> None:
    if not isinstance(cluster, KubernetesCluster):
        pytest.skip("YARN of the tests grants everything")
    world = world_of(make_cluster_world, cluster, in_image=True)
    world.settings["spark"]["conf"]["spark.kubernetes.namespace"] = FORBIDDEN
    world.write_pipeline()
    process = start(world, cluster, "run", "demo")
    out, printed = end(process)
    assert process.returncode == 1, out + printed
    assert 'pods is forbidden: the account cannot create resource "pods"' in printed.partition("error:")[2]
    world.assert_whole()
    assert orders(world) == []


def test_the_doctor_has_a_driver_ask_its_executors(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    world = world_of(make_cluster_world, cluster, in_image=True)
    world.lake.mkdir()
    process = start(world, cluster, "doctor", "demo", "--json")
    out, printed = end(process)
    findings = {finding["check"]: finding for finding in json.loads(out)}
    assert process.returncode == 0, out + printed
    assert "1 of 1 answered" in findings["executors"]["message"]
    assert f"a driver of {cluster.master} read from {world.folder}/orders" in findings["driver"]["message"]
    assert [finding["severity"] for name, finding in findings.items() if name.startswith("executor ")] == ["ok"]
    wait_idle(cluster)
    assert orders(world) == list(world.lake.iterdir()) == []


def test_the_doctor_names_a_driver_that_cannot_work(
    make_cluster_world: Callable[..., TableWorld], cluster: Cluster
) -> None:
    """An image without Tidemark; on YARN, a Python that is not there."""
    world = world_of(make_cluster_world, cluster, in_image=True)
    conf = world.settings["spark"]["conf"]
    if isinstance(cluster, KubernetesCluster):
        del conf[f"{ENVIRONMENT[KubernetesCluster]}PYTHONPATH"]
    else:
        conf["spark.pyspark.python"] = "/nowhere/python"
    world.write_pipeline()
    process = start(world, cluster, "doctor", "demo", "--json")
    out, printed = end(process)
    assert process.returncode == 1, out + printed
    [failed] = [finding for finding in json.loads(out) if finding["severity"] == "failed"]
    assert failed["check"] == "driver"
    assert "the driver on the cluster gave no answer; spark-submit ended with exit status" in failed["message"]
    assert LOOKS[type(cluster)] in failed["next_step"]
    wait_idle(cluster)
    assert orders(world) == []
