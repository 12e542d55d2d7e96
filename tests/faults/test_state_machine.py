"""Thousands of schedules: hypothesis draws who does what next, who is paused, who is killed and what Kafka does.

Real verbs on a real PostgreSQL and real files, a model of the broker. ``Oracle.check`` holds after every step and
``Oracle.check_quiet`` in the end. The fast part always draws the same schedules; the exhaustive one draws new ones.
"""

import multiprocessing
import os
import secrets
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sandbox.services.postgres import Postgres
from tests.faults.actors import Fault
from tests.faults.other_sinks import KINDS, OtherSinks
from tests.faults.state_machine import Schedules

MOST_SEEDS = 20
SEEDED = 10  # schedules of one seed; about 5 s on two cores that do nothing else
STEPS = 25  # more find less in the same time: half of a schedule is to finish what its steps planned
CHUNK = 10
MOST_MORE = 4
SECONDS = float(os.environ.get("TIDEMARK_FAULT_SECONDS", "60"))
FEWEST = 1  # schedules drawn in a second; 2 were seen on two cores
ALSO_DRAWN = (
    "source: retention",
    "source: truncation",
    "source: recreation",
    "plan said DataLost",
    "process said TopicChanged",
    "repair ended well",
    "sweep ended well",
    "adopt ended well",
    "restored, and the lake knew more",
)
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
    "schedules with two sinks",
)


def draw(
    postgres: Postgres,
    template: str,
    reached: Counter[str],
    examples: int,
    *,
    seeded: int,
    shrink: bool = True,
    second: str = "",
    other_sinks: OtherSinks | None = None,
) -> None:
    """Run so many schedules, the same ones for a seed each time; what happens is counted, in a failure too."""
    Schedules.postgres, Schedules.template, Schedules.reached = postgres, template, reached
    Schedules.second, Schedules.other_sinks = second, other_sinks
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,  # also in a process that pytest has not set up
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(seeded)(type("Seeded", (Schedules,), {})), settings=chosen)


def test_the_seeded_schedules_reach_what_is_interesting_and_miss_nothing(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    """What a seed draws depends on every constant in the code, so seeds are tried in turn until all was reached."""
    before = reached.copy()
    for number in range(MOST_SEEDS):
        draw(postgres, template, reached, SEEDED, seeded=number)
        missed = [word for word in REACHED if reached[word] == before[word]]
        if number and not missed:
            break
    assert missed == []


def _drawn(
    port: int, password: str, template: str, first: int, seconds: float, fewest: float
) -> tuple[Counter[str], str]:
    """In a process of its own, on the server that runs already: what happened, and the failure that ended it.

    It draws for so long, and on a busy machine until it has drawn the ``fewest``.
    """
    server = Postgres(Path())
    server.port, server.password = port, password
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline or counts["schedules"] < fewest:
            draw(server, template, counts, CHUNK, seeded=first, shrink=time.monotonic() < deadline - 60)
            first += 1
    except Exception:
        return counts, traceback.format_exc()
    return counts, ""


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * SECONDS + 600)
def test_thousands_of_schedules_miss_nothing_and_double_nothing(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    """New ones each time, for ``TIDEMARK_FAULT_SECONDS``; a failure prints its schedule in the fewest steps found."""
    drawn = _drawn_side_by_side(postgres, template, SECONDS)
    for _ in range(MOST_MORE):  # some events are rare: a quarter more, until all were drawn
        if missed(drawn):
            drawn += _drawn_side_by_side(postgres, template, SECONDS / 4)
    reached.update(drawn)
    assert drawn["schedules"] >= FEWEST * SECONDS
    assert missed(drawn) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * SECONDS + 600)
@pytest.mark.parametrize("kind", KINDS)
def test_schedules_over_a_lake_and_another_sink_miss_nothing_and_double_nothing(
    postgres: Postgres, template: str, other_sinks: OtherSinks, kind: str
) -> None:
    """New ones each time, of processes that are stopped, killed and fail around and inside the other sink's calls."""
    deadline = time.monotonic() + SECONDS / 6
    first = secrets.randbelow(10**9)
    reached: Counter[str] = Counter()
    while time.monotonic() < deadline:
        draw(postgres, template, reached, CHUNK, seeded=first, shrink=False, second=kind, other_sinks=other_sinks)
        first += 1
    assert reached["process ended published"]
    assert any(reached[f"fault {fault.name.lower()}"] for fault in Fault)


def missed(drawn: Counter[str]) -> list[str]:
    return [event for event in (*REACHED, *ALSO_DRAWN) if not drawn[event]]


def _drawn_side_by_side(postgres: Postgres, template: str, seconds: float) -> Counter[str]:
    """By a process for each core; what happened. Fails with each failing schedule in whole: it is drawn once."""
    first = secrets.randbelow(10**9)
    cores = min(4, os.cpu_count() or 1)
    fewest = FEWEST * seconds / cores
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        work = [
            pool.submit(_drawn, postgres.port, postgres.password, template, first + 1_000 * core, seconds, fewest)
            for core in range(cores)
        ]
        ended = [future.result() for future in work]
    failures = [failure for _, failure in ended if failure]
    if failures:
        pytest.fail("\n".join(failures))
    drawn: Counter[str] = Counter()
    for counts, _ in ended:
        drawn.update(counts)
    return drawn
