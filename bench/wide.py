"""Measures `tidemark run` with larger loads: records of one manifest, slices at once, workers of a cluster."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from bench.timed import Timing, family
from sandbox.services.spark_cluster import SparkCluster
from tidemark.model.manifest import count_of

SMALL, MIDDLE, LARGE = 1_000_000, 2_000_000, 20_000_000
SLICES = 8
TURN_S = 0.1


class Runs(Protocol):
    """The methods of ``bench.__main__.Bench`` that this part uses."""

    folder: Path

    def fill(self, topic: str, number_of_messages: int) -> None: ...

    def server(self, topic: str, expected: int) -> AbstractContextManager[None]: ...

    def once(
        self, kind: str, topic: str, expected: int, *, master: str = ..., settings: Mapping[str, Any] = ...
    ) -> Timing: ...


@dataclass(frozen=True)
class Variant:
    """One row of the table. ``workers`` of one core each do the tasks; with 0 the driver does them, on all cores.

    ``halves``: each worker is stopped for half of the time, and two of them never work at once. ``pinned``: the client,
    a Spark Connect server that has done one run before, and all that they start share one core.
    """

    name: str
    messages: int
    workers: int = 0
    halves: bool = False
    pinned: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def _sliced(messages: int, slices: int, at_once: int) -> Variant:
    settings = {"spark": {"parallel_slices": at_once}, "slice": {"max_records": messages // slices}}
    return Variant(f"{messages:,} messages in {slices} slices, {at_once} at once", messages, settings=settings)


def _cluster(messages: int, workers: int, *, halves: bool = False) -> Variant:
    name = f"{messages:,} messages, a cluster of {count_of(workers, 'worker')} of one core each"
    return Variant(name + (", half of the time" if halves else ""), messages, workers, halves, settings=ONE_SLICE)


ONE_SLICE = {"slice": {"max_records": LARGE, "max_bytes": "100GiB"}}
VARIANTS = (
    *(Variant(f"{number:,} messages in one slice", number, settings=ONE_SLICE) for number in (SMALL, LARGE)),
    Variant(f"{MIDDLE:,} messages in one slice, Spark stays up, on one core", MIDDLE, pinned=True, settings=ONE_SLICE),
    *(_sliced(MIDDLE, SLICES, at_once) for at_once in (1, 2)),
    *(_sliced(SLICES * 1_000, SLICES, at_once) for at_once in (1, 2)),
    *(_cluster(MIDDLE, workers) for workers in (1, 2)),
    *(_cluster(LARGE, workers, halves=True) for workers in (1, 2)),
)


def measure(bench: Runs, runs: int) -> dict[str, list[dict[str, Any]]]:
    """Measure every variant once, then each again. The largest is measured once, because it takes minutes."""
    for number in {variant.messages for variant in VARIANTS}:
        bench.fill(_topic(number), number)
    timings: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in VARIANTS}
    for variant in _turns(runs):
        with ExitStack() as stack:
            kind, master = "tidemark", "local[*]"
            if variant.pinned:
                stack.enter_context(_on_one_core())
                stack.enter_context(bench.server(_topic(SMALL), SMALL))
                kind = "warm"
            if variant.workers:
                cluster = stack.enter_context(SparkCluster(bench.folder, workers=variant.workers))
                master = cluster.master
                if variant.halves:
                    stack.enter_context(half_of_the_time([worker.pid for worker in cluster.workers]))
            topic = _topic(variant.messages)
            timing = bench.once(kind, topic, variant.messages, master=master, settings=variant.settings)
        timings[variant.name].append({**timing.as_dict(), "messages": variant.messages})
    return timings


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Restrict everything that starts in the block, and all that it starts, to the first of our cores."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(ours)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


@contextmanager
def half_of_the_time(workers: Sequence[int]) -> Iterator[None]:
    """Let two workers (process ids) and their executors work in turns of ``TURN_S``; a single one works every second
    turn.

    So a second worker takes no core from the first, as if it had a machine of its own, and each is half as fast as its
    core.
    """
    ended = threading.Event()

    def take_turns() -> None:
        turn = 0
        stopped: dict[int, list[psutil.Process]] = {}
        while not ended.is_set():
            for number, pid in enumerate(workers):
                if number % 2 != turn and number not in stopped:
                    stopped[number] = _stop(pid)
            for process in stopped.pop(turn, []):
                _send(process, signal.SIGCONT)
            turn = 1 - turn
            ended.wait(TURN_S)
        for process in (each for processes in stopped.values() for each in processes):
            _send(process, signal.SIGCONT)

    thread = threading.Thread(target=take_turns, name="turns of workers")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop(pid: int) -> list[psutil.Process]:
    """Stop a process and all below it, also those that it starts meanwhile."""
    stopped: list[psutil.Process] = []
    while new := [process for process in family(pid) if process not in stopped]:
        for process in new:
            _send(process, signal.SIGSTOP)
        stopped += new
    return stopped


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _turns(runs: int) -> Iterator[Variant]:
    for number in range(runs):
        yield from (variant for variant in VARIANTS if number == 0 or variant.messages < LARGE)


def _topic(messages: int) -> str:
    return f"wide-{messages}"
