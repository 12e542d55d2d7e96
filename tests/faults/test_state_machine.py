"""Thousands of schedules: hypothesis draws who does what next, who is paused, who is killed and what Kafka does.

Real verbs on a real PostgreSQL and real files, a model of the broker. ``Oracle.check`` holds after every step and
``Oracle.check_quiet`` in the end. The fast part always draws the same schedules; the exhaustive one draws new ones.
"""

import multiprocessing
import os
import secrets
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sandbox.postgres import Postgres
from tests.faults.state_machine import Schedules

SEEDED = 40  # schedules; about 20 s on two cores that do nothing else
STEPS = 25  # more find less in the same time: half of a schedule is to finish what its steps planned
CHUNK = 10
SECONDS = float(os.environ.get("TIDEMARK_FAULT_SECONDS", "360"))
REACHED = (  # loss, restoring and more are sure to be reached by schedules.py
    "an older attempt woke after a newer had published",
    "an older attempt went on beside a newer one",
    "a newer attempt went on beside an older one",
    "fault kill",
    "fault cut",
    "fault fail",
    "fault lose",
    "process ended recovered",
    "process ended superseded",
    "process said Fenced",
    "replay ended unchanged",
    "replay ended published",
    "plan said TopicChanged",
    "accept ended well",
    "a transaction was aborted",
    "a transaction was committed",
)


def draw(postgres: Postgres, template: str, examples: int, *, seeded: int | None, shrink: bool = True) -> Counter[str]:
    """Run so many schedules, the same ones each time without a seed; what they came to."""
    Schedules.postgres, Schedules.template, Schedules.reached = postgres, template, Counter()
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        derandomize=seeded is None,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    machine = Schedules if seeded is None else seed(seeded)(type("Seeded", (Schedules,), {}))
    run_state_machine_as_test(machine, settings=chosen)
    return Schedules.reached


def test_the_seeded_schedules_reach_what_is_interesting_and_miss_nothing(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    found = draw(postgres, template, SEEDED, seeded=None)
    reached.update(found)
    assert [one for one in REACHED if not found[one]] == []


def _drawn(port: int, password: str, template: str, first: int, seconds: float) -> Counter[str]:
    """In a process of its own, on the server that runs already."""
    server = Postgres(Path())
    server.port, server.password = port, password
    found: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found += draw(server, template, CHUNK, seeded=first, shrink=time.monotonic() < deadline - 60)
        first += 1
    return found


@pytest.mark.exhaustive
@pytest.mark.timeout(2 * SECONDS + 600)
def test_thousands_of_schedules_miss_nothing_and_double_nothing(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    """New ones each time, for ``TIDEMARK_FAULT_SECONDS``; a failure prints its schedule in the fewest steps found."""
    first = secrets.randbelow(10**9)
    cores = min(4, os.cpu_count() or 1)
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        work = [
            pool.submit(_drawn, postgres.port, postgres.password, template, first + 1_000 * one, SECONDS)
            for one in range(cores)
        ]
        for one in work:
            reached.update(one.result())
