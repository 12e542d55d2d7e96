"""The legend of a pipeline's pictures: only what they show, each thing once. No I/O."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tidemark.airflow.page.calendar import SIGNS, Calendar
from tidemark.airflow.page.lanes import DEAD_LETTERS, NOT_PLANNED, TAKEN, Coverage
from tidemark.airflow.page.runs import NOTHING_NEW, DrawnRun
from tidemark.airflow.page.state_words import word
from tidemark.airflow.page.timeline import Drawing
from tidemark.operations.status import PROBLEMS, State

OF_HOURS = {"lacking": "with losses", "late": "late rows", "revised": "complete again", "empty": "no rows"}
GAPS = State.LOST.value, TAKEN  # in a line of offsets
WRONG = *(state.value for state in PROBLEMS if state is not State.UNKNOWN), OF_HOURS["lacking"]


@dataclass(frozen=True)
class LegendEntry:
    """The look of ``words``: a ``sign`` of class ``style``, the ``fill`` of a bar, the ``mark`` in a line of offsets.
    An empty one is not drawn.
    """

    words: tuple[str, ...]
    sign: str = ""
    style: str = ""
    fill: str = ""
    mark: str = ""


ENTRIES = (
    LegendEntry((State.OK.value, "complete"), "✓", "ok", "done"),
    LegendEntry((State.WORKING.value,), "▶", "working", "running"),
    LegendEntry((State.WAITING.value, "open"), "○", "waiting", "planned"),
    LegendEntry((State.RETRYING.value,), "↻", "retrying"),
    LegendEntry(tuple(each for each in WRONG if each not in (DEAD_LETTERS, *GAPS)), "✕", "failed", "failed"),
    LegendEntry((State.UNKNOWN.value,), "?", "unknown", "open"),
    LegendEntry((DEAD_LETTERS,), "d", "letters", mark="dead"),
    LegendEntry((OF_HOURS["late"],), "l", "late-rows"),
    LegendEntry((OF_HOURS["revised"],), "r", "late-rows"),
    LegendEntry((NOTHING_NEW, OF_HOURS["empty"]), "·", "", "open"),
    LegendEntry((NOT_PLANNED,), mark="not-planned"),
    LegendEntry(GAPS, mark="taken"),
)


def legend(runs: Sequence[DrawnRun], time: Drawing, coverage: Coverage, calendar: Calendar) -> list[LegendEntry]:
    """Return the entries of what these pictures show, each with only the words and samples that occur."""
    kinds = {hour.kind for day in calendar.days for hour in day.hours if hour}
    signs = {run.word for run in runs} | {OF_HOURS.get(kind, kind) for kind in kinds if SIGNS[kind]}
    fills = {word(block.state) for column in time.columns for block in column.blocks}
    fills |= {kind for kind in kinds if not SIGNS[kind]}
    marks = {word(state) for state in _states_of_cells(coverage)}
    return [entry for each in ENTRIES if (entry := _occurring(each, signs, fills | marks, marks)).words]


def _states_of_cells(coverage: Coverage) -> Iterator[str]:
    for lane in coverage.shown:
        yield from (state for state, _ in lane.cells)
        if lane.letter_cells:
            yield DEAD_LETTERS


def _occurring(
    entry: LegendEntry, signs: Collection[str], fills: Collection[str], marks: Collection[str]
) -> LegendEntry:
    """Return the entry without what does not occur."""
    words = tuple(each for each in entry.words if each in signs or each in fills)
    return replace(
        entry,
        words=words,
        sign=entry.sign if any(each in signs for each in words) else "",
        fill=entry.fill if any(each in fills for each in words) else "",
        mark=entry.mark if any(each in marks for each in words) else "",
    )
