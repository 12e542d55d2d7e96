"""Thousands of schedules: hypothesis draws which process acts next, is paused or is killed, and what Kafka does.

They use real verbs on a real PostgreSQL and real files, and a model of the broker. ``Oracle.check`` holds after every
step, ``Oracle.check_quiet`` at the end. The fast part always draws the same schedules. The exhaustive part draws new
ones, as many as ``TIDEMARK_SCHEDULES`` says: half of them over lakes, the others in equal parts over the other sinks.
The tests do not wait until the draws reach each event: ``forced_events.py`` has a schedule for each event.
"""

import multiprocessing
import os
import secrets
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sandbox.services.postgres import Postgres
from tests.faults.actors import Fault
from tests.faults.forced_events import FORCED, machine
from tests.faults.other_sinks import KINDS, PAIRS, OtherSinks
from tests.faults.state_machine import Schedules

SEEDS = 2
SEEDED = 10  # schedules of one seed; about 5 s on two cores that do nothing else
STEPS = 25  # more find less in the same time: half of a schedule is to finish what its steps planned
CHUNK = 10
NUMBER = int(os.environ.get("TIDEMARK_SCHEDULES", "96"))
OVER_OTHERS = -(-NUMBER // 2 // len((*KINDS, *PAIRS)))  # over each
OVER_LAKES = NUMBER - NUMBER // 2
LONGEST_S = 8  # for a schedule, also when it is drawn again to find the fewest steps of a failure


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


@pytest.mark.parametrize("event", FORCED)
def test_each_event_that_schedules_must_reach_is_reached_where_their_moves_are_chosen_for_it(
    postgres: Postgres, template: str, reached: Counter[str], event: str
) -> None:
    """What is drawn depends on every constant in the code: an event that is rare may not come up in hundreds."""
    own: Counter[str] = Counter()
    FORCED[event].play(machine(postgres=postgres, template=template, reached=own))
    reached.update(own)
    assert own[event] > 0


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_the_seeded_schedules_miss_nothing_and_double_nothing(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    drawn: Counter[str] = Counter()
    for number in range(SEEDS):
        draw(postgres, template, drawn, SEEDED, seeded=number)
    reached.update(drawn)
    assert_worked(drawn)


def assert_worked(drawn: Counter[str]) -> None:
    """Faults hit processes, and others published."""
    assert drawn["process ended published"]
    assert any(drawn[f"fault {fault.name.lower()}"] for fault in Fault)


def _drawn(port: int, password: str, template: str, first: int, number: int) -> tuple[Counter[str], str]:
    """In a process of its own, on the server that runs already: what happened, and the failure that ended it."""
    server = Postgres(Path())
    server.port, server.password = port, password
    counts: Counter[str] = Counter()
    try:
        _draw_chunks(server, template, counts, number, first)
    except Exception:
        return counts, traceback.format_exc()
    return counts, ""


def _draw_chunks(
    postgres: Postgres, template: str, reached: Counter[str], number: int, first: int, second: str = "",
    other_sinks: OtherSinks | None = None,
) -> None:  # fmt: skip
    """Run so many schedules, a few of each seed; hypothesis repeats none, so it may draw fewer of a seed."""
    while reached["schedules"] < number:
        examples = min(CHUNK, number - reached["schedules"])
        draw(postgres, template, reached, examples, seeded=first, second=second, other_sinks=other_sinks)
        first += 1


@pytest.mark.exhaustive
@pytest.mark.timeout(600 + LONGEST_S * OVER_LAKES)
def test_thousands_of_schedules_miss_nothing_and_double_nothing(
    postgres: Postgres, template: str, reached: Counter[str]
) -> None:
    """New ones each time; a failure prints its schedule in the fewest steps found."""
    drawn = _drawn_side_by_side(postgres, template, OVER_LAKES)
    reached.update(drawn)
    assert drawn["schedules"] >= OVER_LAKES
    assert_worked(drawn)


@pytest.mark.exhaustive
@pytest.mark.timeout(600 + LONGEST_S * OVER_OTHERS)
@pytest.mark.parametrize("kind", [*KINDS, *PAIRS])
def test_schedules_over_a_lake_and_other_sinks_miss_nothing_and_double_nothing(
    postgres: Postgres, template: str, reached: Counter[str], other_sinks: OtherSinks, kind: str
) -> None:
    """New ones each time, of processes that are stopped, killed and fail around and inside the other sinks' calls."""
    drawn: Counter[str] = Counter()
    first = secrets.randbelow(10**9)
    _draw_chunks(postgres, template, drawn, OVER_OTHERS, first, kind, other_sinks)
    reached.update(drawn)
    assert drawn["schedules"] >= OVER_OTHERS
    assert_worked(drawn)


def _drawn_side_by_side(postgres: Postgres, template: str, number: int) -> Counter[str]:
    """By a process for each core; what happened. Fails with each failing schedule in whole: it is drawn once."""
    first = secrets.randbelow(10**9)
    cores = min(4, os.cpu_count() or 1)
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        work = [
            pool.submit(_drawn, postgres.port, postgres.password, template, first + 10_000 * core, -(-number // cores))
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
