"""What the schedules came to: printed in the end, and written to the file that TIDEMARK_FAULT_FIGURES names."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.postgres import Postgres
from tests.faults.model_world import ModelWorld, Settings
from tests.faults.schedules import Play

REACHED: Counter[str] = Counter()


@pytest.fixture(scope="session")
def reached() -> Counter[str]:
    """Counts what happened in schedules that must be well, by name."""
    return REACHED


@pytest.fixture
def play(postgres: Postgres, template: str, reached: Counter[str]) -> Iterator[Play]:
    """A world for one schedule that must be well."""
    world = ModelWorld(postgres, template, Settings(), reached)
    yield Play(world)
    world.close()


@pytest.fixture
def broken_play(postgres: Postgres, template: str) -> Iterator[Play]:
    """A world for one schedule that breaks a promise on purpose, so its figures do not count."""
    world = ModelWorld(postgres, template, Settings(), Counter())
    yield Play(world)
    world.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Nothing when no schedule ran."""
    if not REACHED["schedules"]:
        return
    words = ("fault kill", "fault cut", "fault fail", "fault lose")
    figures = {
        "schedules": REACHED["schedules"],
        "faults injected": sum(REACHED[word] for word in words),
        "processes paused": sum(count for name, count in REACHED.items() if name.startswith("paused at")),
        "older attempts that woke late": REACHED["an older attempt woke after a newer had published"],
        "rows missing": REACHED["rows missing"],
        "rows twice": REACHED["rows twice"],
    }
    terminalreporter.write_line(", ".join(f"{name}: {count:,}" for name, count in figures.items()))
    path = os.environ.get("TIDEMARK_FAULT_FIGURES")
    if path:
        Path(path).write_text(json.dumps({**figures, "reached": dict(sorted(REACHED.items()))}, indent=1) + "\n")
