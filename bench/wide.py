"""Measures `tidemark run` with more of everything: records of one manifest, slices at once, workers of a cluster."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.timed import Timing
from sandbox.services.spark_cluster import SparkCluster

SMALL, MIDDLE, LARGE = 1_000_000, 2_000_000, 20_000_000
SLICES = 8


class Runs(Protocol):
    """What ``bench.__main__.Bench`` has for this part."""

    folder: Path

    def fill(self, topic: str, number_of_messages: int) -> None: ...

    def once(
        self, kind: str, topic: str, expected: int, *, master: str = ..., settings: Mapping[str, Any] = ...
    ) -> Timing: ...


@dataclass(frozen=True)
class Variant:
    """One row of the table. ``workers`` of one core each do the tasks; 0: the driver does them, on all cores."""

    name: str
    messages: int
    workers: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


def _sliced(messages: int, slices: int, at_once: int) -> Variant:
    settings = {"spark": {"parallel_slices": at_once}, "slice": {"max_records": messages // slices}}
    return Variant(f"{messages:,} messages in {slices} slices, {at_once} at once", messages, settings=settings)


ONE_SLICE = {"slice": {"max_records": LARGE, "max_bytes": "100GiB"}}
VARIANTS = (
    *(Variant(f"{number:,} messages in one slice", number, settings=ONE_SLICE) for number in (SMALL, LARGE)),
    *(_sliced(MIDDLE, SLICES, at_once) for at_once in (1, 2)),
    *(_sliced(SLICES * 1_000, SLICES, at_once) for at_once in (1, 2)),
    *(
        Variant(f"{MIDDLE:,} messages, a cluster of {number} workers with one core each", MIDDLE, workers=number)
        for number in (1, 2)
    ),
)


def measure(bench: Runs, runs: int) -> dict[str, list[dict[str, Any]]]:
    """Every variant once, then each again. The largest is measured once: it takes minutes."""
    for number in {variant.messages for variant in VARIANTS}:
        bench.fill(_topic(number), number)
    timings: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in VARIANTS}
    for variant in _turns(runs):
        cluster = SparkCluster(bench.folder, workers=variant.workers) if variant.workers else None
        with cluster or nullcontext():
            master = cluster.master if cluster else "local[*]"
            topic = _topic(variant.messages)
            timing = bench.once("tidemark", topic, variant.messages, master=master, settings=variant.settings)
        timings[variant.name].append({**timing.as_dict(), "messages": variant.messages})
    return timings


def _turns(runs: int) -> Iterator[Variant]:
    for number in range(runs):
        yield from (variant for variant in VARIANTS if number == 0 or variant.messages < LARGE)


def _topic(messages: int) -> str:
    return f"wide-{messages}"
