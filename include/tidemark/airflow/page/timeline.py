"""A pipeline along time as a drawing: one column per period, with its manifests by state. No I/O; the page makes SVG of
it.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from tidemark.airflow.page.state_words import word
from tidemark.model.manifest import count_of
from tidemark.operations.timeline import Period, Step, Timeline

COLUMN, GAP, HEIGHT = 20, 2, 48  # in the units of the drawing; a gap is a part of its column
LOWEST = 6  # of a part of a column, so that one failed manifest among a thousand is seen
FOOT = 3  # what a run without manifests shows
UPWARDS = (
    "done",
    "planned",
    "running",
    "unknown",
    "damaged",
    "abandoned",
    "failed",
    "blocked",
)  # parts of a column, from its foot


@dataclass(frozen=True)
class Block:
    """A part of a column, with its upper left corner."""

    state: str
    x: int
    y: float
    height: float


@dataclass(frozen=True)
class DrawnPeriod:
    """One period of the timeline: its ``name`` in UTC, its ``worst`` state, and ``words``, the text that names the
    period and what happened in it.
    """

    name: str
    period: Period
    worst: str
    words: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Drawing:
    """The drawing; ``labels`` are times at even distances. ``older`` and ``newer`` end the neighbouring windows;
    ``newer`` is None for the newest window.
    """

    by: Step
    columns: tuple[DrawnPeriod, ...]
    labels: tuple[str, ...]
    older: datetime
    newer: datetime | None
    undone_before: int
    first_undone_before: int | None

    @property
    def width(self) -> int:
        return COLUMN * len(self.columns)

    @property
    def undone(self) -> list[DrawnPeriod]:
        """Return the columns with manifests that are not done, the worst and of these the newest first."""
        columns = [column for column in reversed(self.columns) if column.period.first_undone is not None]
        return sorted(columns, key=lambda column: -UPWARDS.index(column.worst))

    @property
    def words(self) -> str:
        """Return all of the drawing in one sentence, for a screen reader."""
        counted = Counter(column.worst for column in self.columns)
        states = [f"{counted[state]} with {word(state)} manifests" for state in reversed(UPWARDS[1:]) if counted[state]]
        rest = {"done": "all ok", "nothing new": "nothing new", "no run": "without a run"}
        states += [f"{counted[state]} {words}" for state, words in rest.items() if counted[state]]
        first, last = self.columns[0].name, self.columns[-1].name
        return f"{len(self.columns)} {self.by}s from {first} to {last} UTC: {', '.join(states)}"


def drawn(view: Timeline, now: datetime) -> Drawing:
    first, last = view.periods[0], view.periods[-1]
    length = last.end - last.start
    edges = range(0, len(view.periods) + 1, len(view.periods) // 4)
    window = len(view.periods) * length
    return Drawing(
        view.by,
        tuple(_column(number, period, view.by) for number, period in enumerate(view.periods)),
        tuple(_name(first.start + number * length, view.by) for number in edges),
        first.start,
        min(last.end + window, now) if last.end < now else None,
        view.undone_before,
        view.first_undone_before,
    )


def _column(number: int, period: Period, by: Step) -> DrawnPeriod:
    states = [state for state in UPWARDS if period.manifests.get(state)]
    worst = states[-1] if states else "nothing new" if period.runs else "no run"
    what = [f"{period.manifests[state]:,} {word(state)}" for state in states] or [worst]
    more = [count_of(period.read, "record")] if period.read else []
    name = _name(period.start, by)
    blocks = tuple(_stack(number * COLUMN, period, states)) if states else _foot(number * COLUMN, worst)
    return DrawnPeriod(name, period, worst, f"{name}: {', '.join(what + more)}", blocks)


def _stack(x: int, period: Period, states: list[str]) -> list[Block]:
    """Return one block for each state. Its height is the share of the manifests in that state, but at least ``LOWEST``,
    so that each state can be seen; the higher blocks shrink to make room.
    """
    count = sum(period.manifests.values())
    heights = {state: max(LOWEST, HEIGHT * period.manifests[state] / count) for state in states}
    scale = (HEIGHT - LOWEST * len(states)) / max(1e-9, sum(heights.values()) - LOWEST * len(states))
    blocks, y = [], float(HEIGHT)
    for state in states:
        height = LOWEST + (heights[state] - LOWEST) * scale
        y -= height
        blocks.append(Block(state, x, round(max(0.0, y), 2), round(height, 2)))
    return blocks


def _foot(x: int, worst: str) -> tuple[Block, ...]:
    return (Block(worst, x, HEIGHT - FOOT, FOOT),) if worst == "nothing new" else ()


def _name(start: datetime, by: Step) -> str:
    return f"{start:%m-%d %H:%M}" if by is Step.HOUR else f"{start:%Y-%m-%d}"
