"""The compose file as a person starts it: built, up, a pipeline to the bucket, down, and up again with its volumes."""

import json
import time
from collections.abc import Callable
from typing import Any

import boto3
import psutil
import pytest
from confluent_kafka import Producer

from sandbox.demo.flights import TOPIC, flights
from sandbox.errors import SandboxFailed
from sandbox.services.processes import wait_until

Compose = Callable[..., str]
pytestmark = pytest.mark.timeout(3600)  # the first time, when all images are built
LASTING = {"kafka", "postgres", "s3", "dynamodb", "api-server", "scheduler", "dag-processor", "triggerer"}
PORTS = {9094, 5432, 9000, 8000, 8080}
FLIGHTS = 2000


def start(compose: Compose) -> None:
    compose("up", "--detach", "--no-build")

    def healthy() -> bool:
        lines = compose("ps", "--all", "--format", "json").splitlines()
        states = {service["Service"]: service for service in map(json.loads, lines)}
        assert states["prepare"]["ExitCode"] == 0, compose("logs", "prepare")
        return {name for name, service in states.items() if service["Health"] == "healthy"} == LASTING

    wait_until(healthy, "all services to be healthy", timeout=300, interval=2)


def tidemark(compose: Compose, *words: str) -> str:
    return compose("exec", "--no-TTY", "scheduler", "python", "-m", "tidemark.cli", *words)


def airflow(compose: Compose, *words: str) -> str:
    return compose("exec", "--no-TTY", "scheduler", "airflow", *words)


def produce(first: int) -> None:
    """The next flights, from this machine."""
    producer = Producer({"bootstrap.servers": "localhost:9094"})
    for number, flight in enumerate(flights()):
        if number >= first + FLIGHTS:
            break
        if number >= first:
            producer.produce(TOPIC, json.dumps(flight), key=flight["tailnum"])
    assert producer.flush(30) == 0


def run(compose: Compose) -> None:
    """One run of the pipeline's DAG by hand, to its end."""
    run_id = f"by-hand-{time.time_ns()}"
    airflow(compose, "dags", "trigger", TOPIC, "--run-id", run_id)

    def ended() -> bool:
        printed = airflow(compose, "dags", "list-runs", TOPIC, "--output", "json")
        runs = json.loads(printed.splitlines()[-1])  # the lines above it are warnings of libraries
        [state] = [run["state"] for run in runs if run["run_id"] == run_id]
        assert state != "failed", compose("logs", "--tail", "200", "scheduler")
        return bool(state == "success")

    wait_until(ended, "the run to end", timeout=300, interval=5)


def published(compose: Compose) -> int:
    """The records of all manifests, each of which is done."""
    manifests = json.loads(tidemark(compose, "manifests", TOPIC, "--json"))
    assert {manifest["state"] for manifest in manifests} == {"done"}
    return sum(manifest["counts"]["written"] for manifest in manifests)


def password(compose: Compose) -> Any:
    return json.loads(compose("exec", "--no-TTY", "api-server", "cat", "/var/lib/tidemark/airflow-passwords.json"))


def listening() -> set[tuple[str, int]]:
    """Where this machine can be reached at a port of the compose file."""
    open_ports = {connection.laddr for connection in psutil.net_connections("inet") if connection.status == "LISTEN"}
    return {(address.ip, address.port) for address in open_ports if address.port in PORTS}


def test_without_one_of_the_secrets_nothing_starts(compose: Compose, given: dict[str, str]) -> None:
    for name in given:
        with pytest.raises(SandboxFailed, match=name):
            compose("up", "--detach", "--no-build", **{name: ""})


def test_the_pipeline_comes_to_the_bucket_and_goes_on_after_down_and_up(
    compose: Compose, given: dict[str, str]
) -> None:
    start(compose)
    assert listening() == {("127.0.0.1", port) for port in PORTS}
    tidemark(compose, "doctor", "--airflow")
    airflow(compose, "dags", "unpause", TOPIC)
    produce(0)
    run(compose)
    assert published(compose) == FLIGHTS
    user = password(compose)

    compose("down")
    start(compose)
    assert password(compose) == user
    assert published(compose) == FLIGHTS
    produce(FLIGHTS)
    run(compose)
    assert published(compose) == 2 * FLIGHTS
    tidemark(compose, "audit", TOPIC, "--deep")
    store = boto3.client(
        "s3",
        endpoint_url="http://localhost:9000",
        region_name="us-east-1",
        aws_access_key_id=given["TIDEMARK_S3_ACCESS_KEY"],
        aws_secret_access_key=given["TIDEMARK_S3_SECRET_KEY"],
    )
    keys = [entry["Key"] for entry in store.list_objects_v2(Bucket="lake", Prefix="tidemark/raw/flights/")["Contents"]]
    assert len(keys) > 0
