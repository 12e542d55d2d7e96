"""A stream of RabbitMQ goes to a bucket through a real Airflow, beside a pipeline over Kafka."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.services.rabbitmq import RabbitMQ
from tests.worlds.airflow_world import AirflowWorld
from tests.worlds.s3_world import CONNECTION, S3World
from tests.worlds.stream_world import CONN_ID, StreamWorld
from tests.worlds.world import World, happened

pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine
STREAM_DAG = "from_rabbitmq"


@pytest.mark.thorough
def test_a_stream_goes_to_a_bucket_by_event_hour_as_lines_with_offset_and_data_beside_a_pipeline_over_kafka(
    airflow_world: AirflowWorld, make_s3_world: Callable[..., S3World], rabbit: RabbitMQ
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    buckets: list[S3World] = []

    def make(**settings: Any) -> World:
        buckets.append(make_s3_world(name=STREAM_DAG, **settings))
        return buckets[-1]

    pipeline = StreamWorld(rabbit, make)
    [bucket] = buckets
    bucket.dsn = demo.world.dsn
    [sink] = bucket.settings["sinks"]
    sink["files"]["format"] = "jsonl"
    bucket.settings["retry_delay"] = "1s"
    bucket.write_pipeline()
    pipeline.produce(60)
    demo.world.produce(40)
    login = {"port": rabbit.port, "login": rabbit.user, "password": rabbit.password, "schema": "/"}
    keys = json.loads(bucket.targets[CONNECTION])
    airflow.create_connection(CONN_ID, "rabbitmq", "127.0.0.1", **login)
    airflow.create_connection(CONNECTION, **{**keys, "host": "", "extra": json.dumps(keys["extra"])})
    file = demo.pipelines / f"{STREAM_DAG}.yaml"
    file.write_text((bucket.pipelines / file.name).read_text())
    try:
        demo.deploy()
        airflow.wait_dag(STREAM_DAG)
        airflow.unpause(STREAM_DAG)
        of_stream, of_kafka = airflow.trigger(STREAM_DAG), demo.trigger()
        demo.succeed(of_kafka)
        state = airflow.wait_run(STREAM_DAG, of_stream, timeout=240)
        tasks = airflow.task_instances(STREAM_DAG, of_stream)
        seen = "\n".join(airflow.task_log(STREAM_DAG, of_stream, task) for task in tasks) + json.dumps(
            tasks, default=str
        )
    finally:
        file.unlink()
        (demo.pipelines.parent / "_pipelines" / f"{STREAM_DAG}.json").unlink(missing_ok=True)  # else it is missed
        airflow.delete_dag(STREAM_DAG)
        airflow.delete_connection(CONN_ID)
        airflow.delete_connection(CONNECTION)
    assert state == "success", seen
    assert "read 60" in seen
    assert rabbit.password not in seen
    demo.world.assert_readers_complete()
    assert bucket.ok("audit", STREAM_DAG, "--deep") == ""
    lines = {key: lines_of(bucket.content(key)) for key in bucket.object_keys() if key.startswith("raw/")}
    places = Counter(line["offset"] for of_file in lines.values() for line in of_file)
    assert places == Counter(range(60))
    for key, of_file in lines.items():
        for line in of_file:
            number = line["data"]["n"]
            assert (line["topic"], line["offset"]) == (pipeline.name, number)
            assert f"{happened(number):/%Y/%m/%d/%H/}" in key
    pipeline.streams.delete_stream(pipeline.name)


def lines_of(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]
