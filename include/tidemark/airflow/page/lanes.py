"""Coverage of offsets: one line of cells per partition. No I/O; uPlot draws the cells."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tidemark.airflow.page.state_words import word
from tidemark.model.manifest import count_of
from tidemark.operations.lag import Lag
from tidemark.views.lanes import LaneView, PartView

DEAD_LETTERS = "dead letters"  # below what is done: a manifest may be done, and have some
TAKEN = "taken by retention"  # before it was read; nobody has given it up
NOT_PLANNED = "not planned"
CELLS = 120  # of a line: 3 pixels each on a phone
SHOWN = 24  # lines; the rest is counted
# A cell shows the last of these that it holds: a single failed offset among a billion is seen.
UPWARDS = (
    "done",
    "unknown",
    NOT_PLANNED,
    "planned",
    "running",
    "lost",
    TAKEN,
    "damaged",
    "abandoned",
    "failed",
    "blocked",
)


@dataclass(frozen=True)
class Bar:
    """Offsets ``[start, end)`` of a lane; ``offsets`` of them are in this ``state``. ``records`` counts dead
    letters."""

    state: str
    start: int
    end: int
    offsets: int
    manifest_id: int | None = None
    manifests: int = 0
    records: int = 0

    @property
    def words(self) -> str:
        more = f" and {self.manifests - 1:,} more" if self.manifests > 1 else ""
        of = f", manifest {self.manifest_id}{more}" if self.manifest_id is not None else ""
        state = self.state.removesuffix("s") if self.records == 1 else word(self.state)
        some = f" {self.offsets:,} in" if self.offsets < self.end - self.start and not self.records else ""
        what = f"{self.records:,} {state} in" if self.records else f"{state}{some}"
        return f"{what} [{self.start}, {self.end}){of}"


@dataclass(frozen=True)
class CoveredLane:
    """A partition from its first planned offset to the end of its log.

    ``cells`` are the states of its equal parts, each with the number of neighbours in the same state. ``letters`` are
    the dead letters, and ``letter_cells`` the cells of their manifests, each with the largest share of records that
    became dead letters: which offsets these have, only the sinks know.
    """

    lane: LaneView
    log: Lag | None
    bars: tuple[Bar, ...]
    letters: tuple[Bar, ...]
    cells: tuple[tuple[str, int], ...]
    letter_cells: tuple[tuple[int, float], ...]

    @property
    def complete(self) -> bool:
        return _complete(self.lane, self.log)

    @property
    def name(self) -> str:
        generation = f", log generation {self.lane.generation}" if self.lane.generation > 1 else ""
        return f"{self.lane.topic}-{self.lane.partition}{generation}{' (ended)' if self.lane.retired else ''}"

    @property
    def end(self) -> int:
        return max((bar.end for bar in self.bars), default=self.lane.end)

    @property
    def undone(self) -> list[Bar]:
        """Return what is not done, lost or damaged, the worst first."""
        bars = [bar for bar in self.bars if bar.state not in ("done", NOT_PLANNED)]
        return sorted(bars, key=lambda bar: -UPWARDS.index(bar.state))

    @property
    def offsets(self) -> Counter[str]:
        """Count the offsets in each state."""
        counted = Counter[str]()
        for bar in self.bars:
            counted[bar.state] += bar.offsets
        return counted

    @property
    def words(self) -> str:
        """Return all states in one sentence, the worst first."""
        counted = self.offsets
        states = [f"{counted[state]:,} {word(state)}" for state in reversed(UPWARDS) if counted[state]]
        letters = [count_of(sum(bar.records for bar in self.letters), "dead letter")] if self.letters else []
        return f"{self.name}: {', '.join([*states, *letters]) or 'no offsets'}"


@dataclass(frozen=True)
class Coverage:
    """All partitions of a pipeline, also ended ones. In ``complete`` partitions all that was planned is done; they are
    ``folded``. ``shown`` are the worst of the others; ``more`` counts the rest.
    """

    partitions: int
    complete: int
    shown: list[CoveredLane]
    more: int
    folded: list[CoveredLane]


def coverage(lanes: Sequence[LaneView], logs: Mapping[tuple[str, int], Lag]) -> Coverage:
    """Return the coverage of a pipeline. ``logs`` are begin and end of each log in the source; empty if it has not
    answered.
    """
    pairs = [(lane, None if lane.retired else logs.get((lane.topic, lane.partition))) for lane in lanes]
    folded = [covered_lane(*pair) for pair in pairs if _complete(*pair)]
    others = sorted((pair for pair in pairs if not _complete(*pair)), key=lambda pair: -_badness(*pair))
    shown = [covered_lane(*pair) for pair in others[:SHOWN]]
    return Coverage(len(pairs), len(folded), shown, len(others[SHOWN:]), folded)


def _complete(lane: LaneView, log: Lag | None) -> bool:
    """Return whether all that was planned is done, and you need not look."""
    unsure = log is not None and (log.open_transaction or log.changed)
    return not (lane.parts or lane.blocked or lane.dead_letters or unsure or _taken_beyond(lane, log))


def _badness(lane: LaneView, log: Lag | None) -> int:
    """Return a number for the worst part of a lane; higher is worse."""
    if lane.blocked:
        return len(UPWARDS)
    states = {part.state for part in lane.parts} | ({TAKEN} if _taken_beyond(lane, log) else set())
    return max((UPWARDS.index(state) for state in states), default=0)


def _taken_beyond(lane: LaneView, log: Lag | None) -> bool:
    """Return whether retention removed offsets before they were planned."""
    return log is not None and min(log.log_start, log.last_stable) > lane.end


def covered_lane(lane: LaneView, log: Lag | None = None) -> CoveredLane:
    bars = _bars(lane, log)
    end = max((bar.end for bar in bars), default=lane.end)
    states = ["done"] * CELLS if bars else []
    for bar in sorted(bars, key=lambda bar: UPWARDS.index(bar.state)):
        for cell in _cells(bar, lane.start, end):
            states[cell] = bar.state
    joined, letter_cells = list[Bar](), dict[int, float]()
    for part in lane.dead_letters:
        offsets = part.end - part.start
        bar = Bar(DEAD_LETTERS, part.start, part.end, offsets, part.manifest_id, 1, part.records)
        cells = _cells(bar, lane.start, end)
        share = round(part.records / offsets, 4)
        if letter_cells.keys() & set(cells):
            bar = _joined(joined.pop(), bar)
        letter_cells |= {cell: max(share, letter_cells.get(cell, 0)) for cell in cells}
        joined.append(bar)
    grouped = tuple((state, len(list(same))) for state, same in groupby(states))
    return CoveredLane(lane, log, bars, tuple(joined), grouped, tuple(sorted(letter_cells.items())))


def _bars(lane: LaneView, log: Lag | None) -> tuple[Bar, ...]:
    done = lane.end - lane.start - sum(part.offsets for part in lane.parts)
    bars = [Bar("done", lane.start, lane.end, done)] if done else []
    for part in lane.parts:
        bars += _part(part, 0 if log is None else log.log_start)
    if log is None:
        return tuple(bars)
    first = max(lane.end, min(log.log_start, log.last_stable))
    if _taken_beyond(lane, log):
        bars.append(Bar(TAKEN, lane.end, first, first - lane.end))
    if log.last_stable > first:
        bars.append(Bar(NOT_PLANNED, first, log.last_stable, log.last_stable - first))
    return tuple(bars)


def _part(part: PartView, log_start: int) -> list[Bar]:
    """Return the bars of a part that is not done: two if the source has lost its beginning."""
    bar = Bar(part.state, part.start, part.end, part.offsets, part.first_manifest, part.manifests)
    if part.state in ("lost", "running") or log_start <= part.start or part.offsets < part.end - part.start:
        return [bar]
    middle = min(part.end, log_start)
    taken = replace(bar, state=TAKEN, end=middle, offsets=middle - bar.start)
    rest = replace(bar, start=middle, offsets=bar.end - middle)
    return [taken, rest] if rest.offsets else [taken]


def _cells(bar: Bar, start: int, end: int) -> range:
    """Return the cells that a bar touches."""
    span = max(1, end - start)
    first = (bar.start - start) * CELLS // span
    return range(min(first, CELLS - 1), min(max(first + 1, -(-(bar.end - start) * CELLS // span)), CELLS))


def _joined(left: Bar, right: Bar) -> Bar:
    return Bar(
        DEAD_LETTERS, left.start, right.end, left.offsets + right.offsets, left.manifest_id, left.manifests + 1,
        records=left.records + right.records,
    )  # fmt: skip
