"""The suite notices broken promises: one promise is broken at a time, and a schedule that passes without the break must
fail.

The controls: ``test_schedules.py`` runs the same schedules unbroken; and a source that drops, repeats or alters records
is refused as long as nothing is broken.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.faults.checked_world import CheckedWorld
from tests.faults.model_broker import ModelBroker
from tests.faults.model_world import ModelWorld
from tests.faults.oracle import Violated
from tests.faults.schedules import SCHEDULES
from tests.faults.schedules_of_others import OF_OTHERS
from tidemark import planner
from tidemark.database.ranges import Ranges
from tidemark.database.statements import QUERIES
from tidemark.errors import Blocked
from tidemark.lifecycle import attempt, expected, turns
from tidemark.lifecycle.logs import divergence
from tidemark.lifecycle.publish import Publisher
from tidemark.model.offsets import Range
from tidemark.planner import Plan
from tidemark.providers.iceberg import all_rows
from tidemark.providers.iceberg.files import Replaced
from tidemark.providers.iceberg.table import IcebergTarget
from tidemark.providers.postgres.totals.sink import TotalsOutput
from tidemark.providers.topic import own_staging
from tidemark.sinks.files.sink import FilesOutput
from tidemark.sinks.object_store.folder_staging import FolderStaging

Break = Callable[[pytest.MonkeyPatch, ModelWorld], None]


def nothing(*_: Any, **__: Any) -> None:
    """What a break puts in the place of a check."""


def the_taking_back(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    """An attempt that is overtaken leaves what it has put."""
    patch.setattr(Publisher, "_take_back", nothing)


def the_fence_and_every_guard(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    """Whoever comes stores a receipt, sets the publication and ends the manifest, in any order."""
    patch.setattr(Publisher, "_fence", nothing)
    for query, guard in (
        ("store_receipt", " AND attempt = %(attempt)s FOR UPDATE"),
        ("store_receipt", " AND a.state = 'running'"),
        ("publish", " AND attempt = %(newest)s FOR UPDATE"),
        ("publish", "WHERE NOT %(sink)s::text = ANY (a.taken_back)\n"),
        ("publish", "WHERE publication.attempt <= EXCLUDED.attempt"),
        ("finish", " AND attempt = %(attempt)s"),
    ):
        assert guard in QUERIES[query], f"{query} has no such guard any more: {guard}"
        patch.setitem(QUERIES, query, QUERIES[query].replace(guard, ""))
    world.sql.execute("DROP TRIGGER only_higher ON tidemark.publication")


def the_clean_up_of_objects(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(FilesOutput, "discard", nothing)


def the_clean_up_of_staging(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(FolderStaging, "clear", nothing)


def the_sweeper(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(Publisher, "sweep", lambda _: [])


def the_check_of_topic_ids(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(ModelBroker, "check", nothing)


def the_comparison_of_the_last_record(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(divergence, "differs", lambda *_, **__: False)


def the_look_at_what_others_have_staged(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(Ranges, "staged_below", lambda *_: [])


def the_search_of_the_cut(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    """The log is refused as truncated, but from its end on."""
    patch.setattr(divergence.Search, "first_difference", lambda *arguments: arguments[2].log_end)


def the_look_at_what_held_no_record(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(divergence.Search, "first_filled", nothing)


def the_second_thought_about_the_time(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    """A time is stored although a transaction that was open when the plan looked hid records."""
    honest = planner.plan
    patch.setattr(planner, "plan", lambda *arguments, **named: replace(honest(*arguments, **named), seen=True))


def the_earlier_generations_of_a_log_in_turns(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(turns, "_earlier", lambda *_: [])


def the_earlier_generations_of_a_log_in_progress(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(Ranges, "undone", lambda *_: [])


def the_name_of_a_sink_in_its_staging(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(own_staging, "sink_folder", lambda pipeline_name, _: pipeline_name)


def the_proof_that_a_manifest_never_contributed(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    """That there are no contributions is taken for that there never were any."""
    patch.setattr(expected, "_may_have_put", lambda *_: False)


def the_proof_and_the_totals_that_adopt_makes_again(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    the_proof_that_a_manifest_never_contributed(patch, world)
    patch.setattr(TotalsOutput, "derive_again", lambda *_, **__: iter(()))


def the_look_for_rows_that_nobody_vouches_for(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    """A replay takes out the rows of a manifest only when the table says that it has some."""
    patch.setattr(all_rows, "replaced", lambda *_: Replaced())


def the_look_for_files_in_all_snapshots(patch: pytest.MonkeyPatch, world: ModelWorld) -> None:
    patch.setattr(IcebergTarget, "named", lambda *_: set())


LEFT_BEHIND = "is not part of what was published"
BROKEN: list[tuple[Break, str, str]] = [
    (the_taking_back, "overtaken by one that has put nothing", "I9 fenced"),
    (the_fence_and_every_guard, "overtaken at read.before", "I7 publications grow"),
    (the_fence_and_every_guard, "overtaken at publish.before_record", "I7 publications grow"),
    (the_clean_up_of_objects, "killed while it puts", f"the audit: .*{LEFT_BEHIND}"),
    (the_clean_up_of_objects, "killed while it cleans after a replay", f"the audit: .*{LEFT_BEHIND}"),
    (the_clean_up_of_staging, "overtaken at publish.mid", "the audit: .*staging was left"),
    (the_sweeper, "killed while it cleans after a replay", f"the audit: .*{LEFT_BEHIND}"),
    (the_check_of_topic_ids, "recreated while it is read", "I10 only what is visible"),
    (the_comparison_of_the_last_record, "cut at 30 and grown past 50 before anybody looks", "I22 never silent"),
    (the_comparison_of_the_last_record, "cut and grown again while planned slices wait", "I22 never silent"),
    (the_look_at_what_held_no_record, "cut where a transaction was aborted and grown again", "I22 never silent"),
    (
        the_look_at_what_held_no_record,
        "cut where a transaction was aborted below what was published since",
        "I22 never silent",
    ),
    (
        the_look_at_what_others_have_staged,
        "cut and grown again behind an attempt that has looked",
        "I22 never silent",
    ),
    (
        the_look_at_what_others_have_staged,
        "cut and grown again behind an attempt that died after it had put",
        "I22 never silent",
    ),
    (
        the_second_thought_about_the_time,
        "a transaction ends between two looks of a plan",
        "I32 moments seen",
    ),
    (the_search_of_the_cut, "cut at 30 and grown to 40 before anybody looks", "I22 never silent"),
]


@pytest.mark.parametrize(
    ("broken", "name", "notice"), BROKEN, ids=[f"{target.__name__}-{name}" for target, name, _ in BROKEN]
)
def test_a_schedule_that_is_well_fails_when_a_promise_is_broken(
    unsafe: CheckedWorld, monkeypatch: pytest.MonkeyPatch, broken: Break, name: str, notice: str
) -> None:
    broken(monkeypatch, unsafe.world)
    with pytest.raises(Violated, match=notice):
        SCHEDULES[name](unsafe)


BROKEN_OF_OTHERS: list[tuple[Break, str, str]] = [
    (
        the_earlier_generations_of_a_log_in_turns,
        "cut while slices wait and the last is tried first",
        "I16 order of a key",
    ),
    (
        the_earlier_generations_of_a_log_in_progress,
        "cut while slices wait and the last is tried first",
        "I16 progress",
    ),
    (the_name_of_a_sink_in_its_staging, "two topics of one name", "cannot stage|I10"),
    (the_proof_that_a_manifest_never_contributed, "contributions go back", "I10 nothing twice"),
    (the_proof_and_the_totals_that_adopt_makes_again, "contributions of a copy go back", "I10 nothing twice"),
    (
        the_look_for_rows_that_nobody_vouches_for,
        "rolled back to before replays with other code",
        "I10 nothing twice",
    ),
    (
        the_look_for_files_in_all_snapshots,
        "replayed when the snapshot of the first attempt is gone",
        "I11 whole",
    ),
]


@pytest.mark.parametrize(
    ("broken", "name", "notice"),
    BROKEN_OF_OTHERS,
    ids=[f"{each.__name__}-{name}" for each, name, _ in BROKEN_OF_OTHERS],
)
def test_a_schedule_over_other_sinks_fails_when_a_promise_is_broken(
    make_other_world: Callable[..., ModelWorld], monkeypatch: pytest.MonkeyPatch, broken: Break, name: str, notice: str
) -> None:
    kind, schedule = OF_OTHERS[name]
    with closing(make_other_world(kind, Counter())) as world:
        broken(monkeypatch, world)
        with pytest.raises(AssertionError, match=notice):
            schedule(CheckedWorld(world))


def drop_last(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(0, batch.num_rows - 1)


def repeat_last(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch.slice(batch.num_rows - 1)])


@pytest.mark.parametrize(("lie", "notice"), [(drop_last, "nothing missing"), (repeat_last, "nothing twice")])
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
def test_a_reader_that_lies_is_blocked_by_the_counting_and_noticed_without_it(
    unsafe: CheckedWorld, monkeypatch: pytest.MonkeyPatch, lie: Callable[[pa.RecordBatch], pa.RecordBatch], notice: str,
    counted: bool,
) -> None:  # fmt: skip
    unsafe.planned()
    honest = ModelBroker.batch
    monkeypatch.setattr(ModelBroker, "batch", lambda self, covered: lie(honest(self, covered)))
    if counted:
        unsafe.refused(unsafe.world.process(1), Blocked)
        return
    monkeypatch.setattr(attempt, "check_equations", nothing)
    with pytest.raises(Violated, match=notice):
        unsafe.end(unsafe.world.process(1))


CONSTRAINTS = ("range_no_gap", "range_no_fork", "range_one_end")


@pytest.mark.parametrize(("shift", "notice"), [(1, "I2 contiguous"), (-1, "I1 disjoint")], ids=["gap", "overlap"])
@pytest.mark.parametrize("kept", [True, False], ids=["constrained", "not constrained"])
def test_a_planner_that_lies_is_refused_by_the_chain_and_noticed_without_it(
    unsafe: CheckedWorld, monkeypatch: pytest.MonkeyPatch, shift: int, notice: str, kept: bool
) -> None:
    unsafe.planned()
    unsafe.world.produce(5)
    honest = planner.plan

    def lying(*arguments: Any, **named: Any) -> Plan:
        plan = honest(*arguments, **named)
        first, *others = plan.slices
        moved = tuple(Range(covered.at, covered.start + shift, covered.end) for covered in first)
        return replace(plan, slices=(moved, *others))

    monkeypatch.setattr(planner, "plan", lying)
    if kept:
        planner_that_lies = unsafe.end(unsafe.world.plan())
        assert "the database refused a range (range_no_gap)" in str(planner_that_lies.error)
        return
    for name in CONSTRAINTS:
        unsafe.world.sql.execute(f"ALTER TABLE tidemark.manifest_range DROP CONSTRAINT {name}")
    with pytest.raises(Violated, match=notice):
        unsafe.end(unsafe.world.plan())
