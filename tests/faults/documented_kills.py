"""The tables of docs/guarantees.md about what readers see after a kill at each failpoint, and the kill itself."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.world import World
from tidemark.failpoints import FAILPOINTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"
# Every cell of the table of a table or of totals, which are in the manifest database (``same``) or in one of their own;
# those next to the COMMIT always, the others in `make test-faults`.
AT_EACH_POINT_IN_EITHER_DATABASE = pytest.mark.parametrize(
    ("point", "same"),
    [
        pytest.param(point, same, marks=() if point.startswith("publish.before") else pytest.mark.exhaustive)
        for point in FAILPOINTS
        for same in (False, True)
    ],
)


def table(heading: str) -> dict[str, tuple[str, ...]]:
    """Failpoint to the other cells of its row, in the section that begins with this line."""
    section = re.split(r"\n##", DOCUMENT.read_text().split(f"\n{heading}\n")[1])[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \|(.+)\|$", section, re.MULTILINE)
    return {point: tuple(cell.strip() for cell in cells.split("|")) for point, cells in rows}


def killed_and_done_again(
    world: World, point: str, seen: Callable[[], object], whole: Callable[[], object]
) -> tuple[str, int]:
    """Kill a first run at a failpoint, then retry and run it again, after which nothing is missing.

    Returns what a reader sees after the kill, "whole" or "nothing", and the attempt that is published in the end.
    """
    world.produce(100, bad_every=9)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    content = seen()
    assert content in ({}, whole())
    world.finish()
    [manifest] = world.json("manifests", "demo")
    return "whole" if content else "nothing", manifest["published_attempt"]
