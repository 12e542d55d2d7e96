"""A driver that a command of the user starts somewhere: order and receipt go through a store."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox.services.processes import wait_until
from sandbox.services.s3 import Bucket
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.worlds.world import World
from tidemark.spark.cluster import APPLICATION
from tidemark.spark.session import spark_configuration

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]
START = 300  # seconds for a driver: 10 on two idle cores


class Elsewhere:
    """A pipeline whose drivers a script starts, as a user's script would on a cluster."""

    def __init__(self, world: World, bucket: Bucket, proxy: S3Proxy) -> None:
        self.world, self.bucket = world, bucket
        self.script = world.folder / "submit.sh"
        self.environment = {"AIRFLOW_CONN_ORDERS": bucket.connection(proxy.endpoint_url)}
        self.starts(self.driver)
        self.settings: dict[str, Any] = {
            "engine": "cluster", "orders": bucket.root, "orders_connection": "orders", "submit": [str(self.script)],
        }  # fmt: skip
        world.settings = {**world.settings, "spark": self.settings}
        world.write_pipeline()

    @property
    def driver(self) -> str:
        """The command of one driver in a shell."""
        conf = spark_configuration(self.world.spark_jars) | {"spark.driver.host": "127.0.0.1"}
        options = " ".join(f"--conf '{name}={value}'" for name, value in conf.items())
        submit = Path(sys.executable).with_name("spark-submit")
        return f"{submit} --master 'local[2]' {options} {APPLICATION} \"$@\""

    def starts(self, *commands: str) -> None:
        python = f"export PYSPARK_PYTHON={sys.executable} SPARK_LOCAL_IP=127.0.0.1"
        self.script.write_text("\n".join(["#!/bin/sh", python, *commands, ""]))
        self.script.chmod(0o755)

    def run(self, *words: str) -> tuple[int, str]:
        process = self.world.start(*words, spark=True, env=self.environment)
        out, err = process.communicate(timeout=START)
        assert "Traceback" not in err, err
        return process.returncode, out + err

    def orders(self) -> list[str]:
        pages = self.bucket.client().list_objects_v2(Bucket=self.bucket.name, Prefix=f"{self.bucket.prefix}/")
        return [entry["Key"] for entry in pages.get("Contents", ())]


@pytest.fixture
def elsewhere(make_world: Callable[..., World], s3: Bucket, tmp_path: Path) -> Iterator[Elsewhere]:
    world = make_world()
    world.produce(20)
    own = s3.below(tmp_path.name)
    with S3Proxy(s3) as proxy:
        made = Elsewhere(world, own, proxy)
        made.proxy = proxy  # type: ignore[attr-defined]
        yield made
    own.empty()
