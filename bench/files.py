"""Measures how many files `tidemark run` writes, and what they cost, with one partition a task and with several."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bench.records import PARTITIONS
from bench.timed import Timing

MESSAGES = {(200_000, 100): "many", (2_000_000, PARTITIONS): "few"}  # (messages, partitions): topic
GROUPINGS = {"a task for each partition": {"records_per_task": 1}, "tasks as they are made": {}}


class Runs(Protocol):
    """What ``bench.__main__.Bench`` has for this part."""

    beside: Path | None

    def fill(self, topic: str, number_of_messages: int, partitions: int = ...) -> None: ...

    def once(self, kind: str, topic: str, expected: int, *, settings: Mapping[str, Any] = ...) -> Timing: ...


def measure(bench: Runs, runs: int) -> dict[str, list[dict[str, Any]]]:
    """Both groupings in turn, for each set of messages, and the checkout beside this one where there is one."""
    contenders = [(name, "tidemark", spark) for name, spark in GROUPINGS.items()]
    if bench.beside is not None:
        contenders.append(("the checkout beside", "beside", {}))
    timings: dict[str, list[dict[str, Any]]] = {}
    for (messages, partitions), topic in MESSAGES.items():
        bench.fill(topic, messages, partitions)
        for _ in range(runs):
            for name, kind, spark in contenders:
                settings = {"spark": spark, "slice": {"max_records": messages}}
                timing = bench.once(kind, topic, messages, settings=settings)
                title = f"{messages:,} messages in {partitions} partitions, {name}"
                timings.setdefault(title, []).append(timing.as_dict())
    return timings
