"""A chain as a drawing: one bar per partition along its offsets. Pure; the page turns it into SVG."""

from dataclasses import dataclass

from tidemark.views import LaneView

WIDTH = 1000.0  # of a lane, in the units of the drawing
NARROWEST = 5.0  # of a bar, so that a single failed offset among a billion is seen


@dataclass(frozen=True)
class Bar:
    """A part of a lane from ``x`` on; ``start`` and ``end`` are its offsets."""

    state: str
    x: float
    width: float
    start: int
    end: int
    manifest_id: int | None = None
    manifests: int = 0

    @property
    def words(self) -> str:
        more = f" and {self.manifests - 1:,} more" if self.manifests > 1 else ""
        of = f", manifest {self.manifest_id}{more}" if self.manifest_id is not None else ""
        return f"{self.state} [{self.start:,}, {self.end:,}){of}"


def bars(lane: LaneView, last_stable: int | None = None) -> list[Bar]:
    """What is done first, below the others; ``last_stable`` is where the source ends, None when that is not known."""
    end = max(lane.end, last_stable or 0)
    scale = WIDTH / max(1, end - lane.start)

    def bar(state: str, start: int, end: int, manifest_id: int | None = None, manifests: int = 0) -> Bar:
        width = max(NARROWEST, (end - start) * scale)
        x = min((start - lane.start) * scale, WIDTH - width)
        return Bar(state, round(max(0.0, x), 2), round(min(width, WIDTH), 2), start, end, manifest_id, manifests)

    drawn = [bar("done", lane.start, lane.end)] if lane.end > lane.start else []
    drawn += [bar(part.state, part.start, part.end, part.first_manifest, part.manifests) for part in lane.parts]
    return drawn + ([bar("not planned", lane.end, end)] if end > lane.end else [])
