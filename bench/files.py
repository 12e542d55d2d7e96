"""Measures how many files `tidemark run` writes, and their cost, with one partition per task and with several."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from bench.records import PARTITIONS
from bench.timed import Timing
from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.demo import flights
from sandbox.services.broker import Broker

MESSAGES = {(200_000, 100): "many", (2_000_000, PARTITIONS): "few"}  # (messages, partitions): topic
DAYS = 366  # days of the flights in UTC, each with a folder
GROUPINGS = {"a task for each partition": {"records_per_task": 1}, "tasks as they are made": {}}


class Runs(Protocol):
    """The methods of ``bench.__main__.Bench`` that this part uses."""

    beside: Path | None
    broker: Broker

    def fill(self, topic: str, number_of_messages: int, partitions: int = ...) -> None: ...

    def once(self, kind: str, topic: str, expected: int, *, settings: Mapping[str, Any] = ...) -> Timing: ...


def measure(bench: Runs, runs: int) -> dict[str, list[dict[str, Any]]]:
    """Measure both groupings in turn, for each set of messages, and the other checkout if there is one."""
    contenders = [(name, "tidemark", spark) for name, spark in GROUPINGS.items()]
    if bench.beside is not None:
        contenders.append(("the checkout beside", "beside", {}))
    timings: dict[str, list[dict[str, Any]]] = {}

    def measure_each(what: str, topic: str, messages: int, settings: Mapping[str, Any]) -> None:
        for _ in range(runs):
            for name, kind, spark in contenders:
                timing = bench.once(kind, topic, messages, settings={**settings, "spark": spark})
                timings.setdefault(f"{what}, {name}", []).append(timing.as_dict())

    flights.ensure_loaded(bench.broker)
    measure_each(f"{flights.FLIGHTS:,} flights of {DAYS} days", flights.TOPIC, flights.FLIGHTS, _of_flights())
    for (messages, partitions), topic in MESSAGES.items():
        bench.fill(topic, messages, partitions)
        what = f"{messages:,} messages in {partitions} partitions"
        measure_each(what, topic, messages, {"slice": {"max_records": messages}})
    return timings


def _of_flights() -> dict[str, Any]:
    """Return the settings from the pipeline file of `make run`."""
    pipelines = CHECKOUT / "include" / "pipelines"
    demo = yaml.safe_load((pipelines / "flights.yaml").read_text())
    [sink] = demo["sinks"]
    return {
        "slice": demo["source"]["kafka"]["slice"],
        "decode": {**demo["decode"], "schema": str(pipelines / demo["decode"]["schema"])},
        "event_time": demo["event_time"],
        "layout": sink["files"]["layout"],
        "folders": DAYS,
    }
