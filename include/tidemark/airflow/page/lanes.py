"""A chain as a drawing: one bar per partition along its offsets. Pure; the page turns it into SVG."""

from dataclasses import dataclass, replace
from typing import Self

from tidemark.airflow.page.state_words import word
from tidemark.views.lanes import LaneView

DEAD_LETTERS = "dead letters"  # below what is done: a manifest may be done, and have some
WIDTH = 1000.0  # of a lane, in the units of the drawing
NARROWEST = 5.0  # of a bar, so that a single failed offset among a billion is seen


@dataclass(frozen=True)
class Bar:
    """A part of a lane from ``x`` on; ``start`` and ``end`` are its offsets; ``records`` counts its dead letters."""

    state: str
    x: float
    width: float
    start: int
    end: int
    manifest_id: int | None = None
    manifests: int = 0
    records: int = 0

    @property
    def words(self) -> str:
        more = f" and {self.manifests - 1:,} more" if self.manifests > 1 else ""
        of = f", manifest {self.manifest_id}{more}" if self.manifest_id is not None else ""
        state = self.state.removesuffix("s") if self.records == 1 else word(self.state)
        what = f"{self.records:,} {state} in" if self.records else state
        return f"{what} [{self.start:,}, {self.end:,}){of}"


def bars(lane: LaneView, last_stable: int | None = None) -> list[Bar]:
    """Return the bars that are drawn first, below the others; ``last_stable`` is where the source ends, None when that
    is not known."""
    scale = _Scale.of(lane, last_stable)
    drawn = [scale.bar("done", lane.start, lane.end)] if lane.end > lane.start else []
    drawn += [scale.bar(part.state, part.start, part.end, part.first_manifest, part.manifests) for part in lane.parts]
    return drawn + ([scale.bar("not planned", lane.end, scale.end)] if scale.end > lane.end else [])


def letter_bars(lane: LaneView, last_stable: int | None = None) -> list[Bar]:
    """Return the bars of dead letters, on the same scale; those so near to each other that their bars would meet are
    one."""
    scale, drawn = _Scale.of(lane, last_stable), list[Bar]()
    for part in lane.dead_letters:
        bar = replace(scale.bar(DEAD_LETTERS, part.start, part.end, part.manifest_id, 1), records=part.records)
        if drawn and bar.x <= drawn[-1].x + drawn[-1].width:
            bar = _joined(scale, drawn.pop(), bar)
        drawn.append(bar)
    return drawn


def _joined(scale: "_Scale", left: Bar, right: Bar) -> Bar:
    joined = scale.bar(DEAD_LETTERS, left.start, right.end, left.manifest_id, left.manifests + 1)
    return replace(joined, records=left.records + right.records)


@dataclass(frozen=True)
class _Scale:
    """From offsets to the units of the drawing."""

    start: int
    end: int

    @classmethod
    def of(cls, lane: LaneView, last_stable: int | None) -> Self:
        return cls(lane.start, max(lane.end, last_stable or 0))

    def bar(self, state: str, start: int, end: int, manifest_id: int | None = None, manifests: int = 0) -> Bar:
        of_one = WIDTH / max(1, self.end - self.start)
        width = max(NARROWEST, (end - start) * of_one)
        x = min((start - self.start) * of_one, WIDTH - width)
        return Bar(state, round(max(0.0, x), 2), round(min(width, WIDTH), 2), start, end, manifest_id, manifests)
