"""The protocol holds in every state within bounds; each way to break it is found."""

from dataclasses import astuple

import pytest

from tests.model.explorer import Bounds, Explorer, Violated
from tests.model.world import Kind, Rules

SMALL = [
    (Kind.FOLDER, Bounds(attempts=2)),
    (Kind.BUCKET, Bounds(attempts=2)),
    (Kind.TABLE, Bounds(attempts=2)),
    (Kind.SHARED, Bounds(attempts=2)),
    (Kind.TABLE, Bounds(attempts=3, errors=0, lost=0, sweeps=0)),
    (Kind.SHARED, Bounds(attempts=3, errors=0, lost=0, sweeps=0)),
    (Kind.FOLDER, Bounds(attempts=2, errors=0, lost=0, repairs=1, cleaners=2)),
]
LARGE = [
    (Kind.FOLDER, Bounds(attempts=2, errors=0, repairs=1, cleaners=2)),
    (Kind.FOLDER, Bounds(attempts=3, errors=0, lost=0, sweeps=0)),
    (Kind.TABLE, Bounds(attempts=3, errors=0, lost=1, sweeps=0)),
    (Kind.BUCKET, Bounds(attempts=2, errors=0, sweeps=2, cleaners=2)),
]
BROKEN = {
    "whoever comes sets the publication": (Rules(fence_mark=False), Bounds(attempts=2)),
    "the mark before the record": (Rules(order=("parts", "mark", "record")), Bounds(attempts=2)),
    "the record before the objects, and nobody looks at them": (
        Rules(order=("record", "parts", "mark"), believes_partial=True), Bounds(attempts=2),
    ),
    "removed without being declared": (Rules(Kind.BUCKET, declares=False), Bounds(attempts=2, sweeps=0)),
    "what is published is taken back": (Rules(take_back_published=True), Bounds(attempts=2, sweeps=2, cleaners=2)),
    "what was taken back is published": (Rules(mark_taken_back=True), Bounds(attempts=2, sweeps=2, cleaners=2)),
    "the verdict does not know what was taken back": (Rules(Kind.BUCKET, believes_declared=True), Bounds(attempts=2)),
    "an attempt that cannot ask the database removes": (Rules(gives_up_unasked=True), Bounds(attempts=2)),
    "a retry looks at staging only": (Rules(compares_records=False), Bounds(attempts=2)),
    "a repair of what is alive": (
        Rules(looks_at_sessions=False, repair_declares=False), Bounds(attempts=2, sweeps=0, repairs=1),
    ),
    "a repair does not declare": (Rules(repair_declares=False), Bounds(attempts=2, errors=0, repairs=1, cleaners=2)),
    "what does not meet an expectation is published": (Rules(expects=True, blocks=False), Bounds(attempts=2)),
    "a table: nobody waits for a lower merge": (Rules(Kind.TABLE, waits=False), Bounds(errors=0, sweeps=0)),
    "a table: no fence before COMMIT": (Rules(Kind.TABLE, fence_commit=False), Bounds(errors=0, sweeps=0)),
    "a table: its rows are declared taken back": (Rules(Kind.TABLE, declares_tables=True), Bounds(errors=0, sweeps=0)),
}  # fmt: skip


def name(value: Kind | Bounds) -> str:
    """The kind, or the numbers of the bounds in their order."""
    return value.value if isinstance(value, Kind) else "-".join(map(str, astuple(value)))


@pytest.mark.parametrize(("kind", "bounds"), SMALL, ids=name)
def test_the_protocol_holds(kind: Kind, bounds: Bounds) -> None:
    figures = Explorer(Rules(kind), bounds).run()
    assert figures.states > 10_000, figures


@pytest.mark.parametrize("kind", Kind, ids=str)
def test_what_an_expectation_blocks_is_published_by_other_code_or_when_a_person_accepts_it(kind: Kind) -> None:
    figures = Explorer(Rules(kind, expects=True), Bounds(attempts=2, errors=0)).run()
    assert figures.states > 1_000, figures


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "bounds"), LARGE, ids=name)
def test_the_protocol_holds_within_wider_bounds(kind: Kind, bounds: Bounds) -> None:
    figures = Explorer(Rules(kind), bounds).run()
    assert figures.states > 10_000, figures


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_protocol_is_found(what: str) -> None:
    rules, bounds = BROKEN[what]
    with pytest.raises(Violated):
        Explorer(rules, bounds).run()
