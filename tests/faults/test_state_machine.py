"""Thousands of schedules: hypothesis draws who does what next, who is paused, who is killed and what Kafka does.

Real verbs on a real PostgreSQL and real files, a model of the broker. ``Oracle.check`` holds after every step and
``Oracle.check_quiet`` in the end. The fast part always draws the same schedules; the exhaustive one draws new ones, as
many as ``TIDEMARK_SCHEDULES`` says: half of them over lakes, the others in equal parts over what else there is.
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
from tests.faults.other_sinks import KINDS, PAIRS, OtherSinks
from tests.faults.state_machine import Schedules

MOST_SEEDS = 20
SEEDED = 10  # schedules of one seed; about 5 s on two cores that do nothing else
STEPS = 25  # more find less in the same time: half of a schedule is to finish what its steps planned
CHUNK = 10
MOST_MORE = 16
NUMBER = int(os.environ.get("TIDEMARK_SCHEDULES", "96"))
OVER_OTHERS = -(-NUMBER // 2 // len((*KINDS, *PAIRS)))  # over each
OVER_LAKES = NUMBER - NUMBER // 2
LONGEST_S = 8  # for a schedule, also when it is drawn again to find the fewest steps of a failure
ALSO_DRAWN = (
    "source: retention",
    "source: truncation",
    "source: recreation",
    "a plan stood at kafka open_transactions",
    "between two questions of a plan: recreation",
    "a truncation was accepted with unread offsets",
    "plan said DataLost",
    "process said TopicChanged",
    "repair ended well",
    "sweep ended well",
    "adopt ended well",
    "restored, and the lake knew more",
)
REACHED = (  # loss, restoring, attempts that find all put and more are sure to be reached by schedules.py
    "an older attempt woke after a newer had published",
    "an older attempt went on beside a newer one",
    "a newer attempt went on beside an older one",
    "fault kill",
    "fault cut",
    "fault fail",
    "fault lose",
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


@pytest.mark.thorough
@pytest.mark.timeout(300)
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
    for _ in range(MOST_MORE):  # some events are rare: a quarter more, until all were drawn
        if missed(drawn):
            drawn += _drawn_side_by_side(postgres, template, OVER_LAKES // 4)
    reached.update(drawn)
    assert drawn["schedules"] >= OVER_LAKES
    assert missed(drawn) == []


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
    assert drawn["process ended published"]
    assert any(drawn[f"fault {fault.name.lower()}"] for fault in Fault)


def missed(drawn: Counter[str]) -> list[str]:
    return [event for event in (*REACHED, *ALSO_DRAWN) if not drawn[event]]


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
