"""Schedules with retention, truncation, recreated topics and restored databases."""

from dataclasses import replace

from tests.faults.actors import Actor
from tests.faults.checked_world import CheckedWorld, Schedule
from tests.faults.oracle import Violated
from tests.faults.restored_database import restored
from tidemark.errors import DatabaseBehindLake, DataLost, IllegalTransition, TopicChanged, WorkFailed
from tidemark.lifecycle.publish import Ending
from tidemark.model.manifest import ManifestState


def recreated_while_it_is_read(checked: CheckedWorld) -> None:
    """The new topic has records at the old offsets, so that reading them gives no error."""
    world = checked.world
    checked.planned()
    attempt = world.process(1)
    checked(world.run_to(attempt, "attempt.started"))
    checked(world.step(attempt))
    world.recreate()
    world.produce(20)
    world.produce(20, partition=1)
    checked.refused(attempt, TopicChanged)
    checked.refused(world.plan(), TopicChanged)
    checked.settle()


def recreated_between_two_questions_of_a_plan(checked: CheckedWorld) -> None:
    """The planner knows the id of the old topic, and gets the offsets of the new one, which is longer."""
    world = checked.world
    world.produce(3)
    checked.well(world.plan())
    world.produce(2)
    planner = world.plan()
    assert world.run_to_question(planner, "kafka bounds")
    world.recreate()
    world.produce(9)
    checked.refused(planner, TopicChanged)
    checked.settle()


def retention_takes_what_was_not_read(checked: CheckedWorld) -> None:
    world = checked.world
    checked.planned()
    world.produce(4)
    world.delete_records(1.0)
    checked.refused(world.plan(), DataLost)
    checked.refused(world.process(1), DataLost)
    checked.well(world.accept_loss())
    checked.run()
    checked.settle()


def retention_takes_what_only_lacks_its_mark(checked: CheckedWorld) -> None:
    """Its output exists, so it is not lost and may not be given up."""
    world = checked.world
    checked.planned()
    killed = world.process(1)
    checked.kill_at(killed, "publish.before_mark")
    world.delete_records(1.0)
    checked.refused(world.accept_loss(), IllegalTransition)
    assert checked.well(world.process(1)).result.ending is Ending.RECOVERED  # type: ignore[attr-defined]
    checked.settle()


def accepted_as_gone_and_back_again(checked: CheckedWorld) -> None:
    """The topic was only unavailable: its published records are not read again."""
    world = checked.world
    world.produce(5)
    checked.run()
    gone = world.broker.by_name.pop("a")
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_topic())
    world.broker.by_name["a"] = gone
    world.produce(5)
    checked.run()
    checked.settle()


def _accepted_as_gone_and_back_again(checked: CheckedWorld, *, lost: int, more: int) -> None:
    """Ten records are published in two manifests; when the topic is back, its log has lost some and has others."""
    world = checked.world
    for _ in range(2):
        world.produce(5)
        checked.run()
    gone = world.broker.by_name.pop("a")
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_topic())
    world.broker.by_name["a"] = gone
    world.truncate(lost)
    world.produce(more)
    checked.well(world.plan())
    world.produce(5)
    checked.settle()


def accepted_as_gone_and_back_again_with_a_shorter_log(checked: CheckedWorld) -> None:
    """It was cut at 5 and ends at 7, below the end of what is published: offset 5 holds another record now."""
    _accepted_as_gone_and_back_again(checked, lost=5, more=2)


def accepted_as_gone_and_back_again_with_a_log_cut_inside_of_a_manifest(checked: CheckedWorld) -> None:
    _accepted_as_gone_and_back_again(checked, lost=7, more=3)


def _cut_and_accepted(checked: CheckedWorld, lost: int) -> None:
    """The log loses so many records, a plan is refused, and a person accepts it."""
    checked.world.truncate(lost)
    checked.refused(checked.world.plan(), TopicChanged)
    checked.well(checked.world.accept_truncation())


def truncated_below_the_chain(checked: CheckedWorld) -> None:
    world = checked.world
    checked.run()
    world.produce(6)
    checked.run()
    world.truncate(3)
    checked.refused(world.plan(), TopicChanged)
    world.produce(9)
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_truncation())
    checked.run()
    checked.settle()


def extended_back_after_a_cut(checked: CheckedWorld) -> None:
    """The first generation began at offset 10. Nobody has read what lies before it, whatever was cut above."""
    world = checked.world
    world.settings = replace(world.settings, starting_offsets="latest")
    world.produce(10)
    checked.run()
    world.produce(5)
    checked.run()
    _cut_and_accepted(checked, 2)
    world.produce(5)
    checked.run()
    checked.oracle.forget()  # the anchor moves
    checked.well(world.extend_back())
    world.settings = replace(world.settings, starting_offsets="earliest")
    checked.settle()


def _taken_for_cut_at_7(checked: CheckedWorld) -> None:
    """A plan gets an old answer of the broker and is refused; a person accepts a truncation that never was."""
    log = checked.world.log("a", 0)
    whole = log.entries
    log.entries = whole[:7]
    checked.refused(checked.world.plan(), TopicChanged)
    log.entries = whole
    checked.well(checked.world.accept_truncation())
    checked.world.produce(5)
    checked.run()
    checked.settle()


def taken_for_cut_where_all_is_published(checked: CheckedWorld) -> None:
    for _ in range(2):
        checked.world.produce(5)
        checked.run()
    _taken_for_cut_at_7(checked)
    assert {covered.generation for each in checked.oracle.manifests.values() for covered in each.ranges} == {1}


def taken_for_cut_below_a_published_slice_while_others_wait(checked: CheckedWorld) -> None:
    """The third slice is published; what it vouches for is neither lost nor read twice."""
    checked.world.produce(20)
    checked.well(checked.world.plan())
    checked.well(checked.world.process(1))
    checked.well(checked.world.process(3))
    _taken_for_cut_at_7(checked)


def _published_and_cut_at_30(checked: CheckedWorld) -> None:
    """Fifty records are published in ten manifests."""
    world = checked.world
    for _ in range(5):
        world.produce(10)
        checked.run()
    world.truncate(20)


def _accepted_from(checked: CheckedWorld, offset: int) -> None:
    """A plan is refused, and after the decision every record from the offset on is read."""
    world = checked.world
    checked.refused(world.plan(), TopicChanged)
    if checked.oracle.refused() != ("a", 0, offset):
        raise Violated(f"I22 never silent: refused is {checked.oracle.refused()}, not from offset {offset} on")
    checked.well(world.accept_truncation())
    checked.run()
    checked.settle()


def cut_at_30_and_grown_to_40_before_anybody_looks(checked: CheckedWorld) -> None:
    _published_and_cut_at_30(checked)
    checked.world.produce(10)
    _accepted_from(checked, 30)


def cut_at_30_and_grown_past_50_before_anybody_looks(checked: CheckedWorld) -> None:
    _published_and_cut_at_30(checked)
    checked.world.produce(33)
    _accepted_from(checked, 30)


def cut_twice_and_grown_again_before_anybody_looks(checked: CheckedWorld) -> None:
    _published_and_cut_at_30(checked)
    checked.world.produce(33)
    checked.world.truncate(40)
    checked.world.produce(40)
    _accepted_from(checked, 23)


def cut_and_grown_again_in_a_transaction_that_is_open(checked: CheckedWorld) -> None:
    """The new record at the offset of the last published one cannot be read as committed yet."""
    _published_and_cut_at_30(checked)
    checked.world.begin()
    checked.world.produce(33)
    _accepted_from(checked, 30)


def cut_and_grown_again_while_planned_slices_wait(checked: CheckedWorld) -> None:
    """Records of the new generation at the planned offsets would hide that those before them were never read."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.produce(10)
    checked.well(world.plan())
    world.truncate(12)
    world.produce(30)
    checked.refused(world.process(2), TopicChanged)
    checked.refused(world.process(1, replay=True), TopicChanged)
    _accepted_from(checked, 3)


def _first_slice(checked: CheckedWorld) -> Actor:
    """An attempt at the first five records of a log."""
    checked.world.produce(5)
    checked.well(checked.world.plan())
    return checked.world.process(1)


def _cut_and_grown_past_it(checked: CheckedWorld) -> None:
    """All of the first slice is gone, and manifest 2 is planned from what has come since."""
    checked.world.truncate(5)
    checked.world.produce(8)
    checked.well(checked.world.plan())


def _noticed_and_accepted(checked: CheckedWorld) -> None:
    checked.refused(checked.world.plan(), TopicChanged)
    checked.well(checked.world.accept_truncation())
    checked.settle()


def _published_with_an_aborted_tail(checked: CheckedWorld, records: int) -> None:
    """So many records, and behind them four of a transaction that was aborted."""
    world = checked.world
    world.produce(records)
    world.begin()
    world.produce(4)
    world.end(commit=False)
    checked.run()


def cut_where_a_transaction_was_aborted_and_grown_again(checked: CheckedWorld) -> None:
    """The last published record is below the cut and stands; what was behind it held no record a reader may see."""
    world = checked.world
    _published_with_an_aborted_tail(checked, 3)
    checked.run()
    world.truncate(5)
    world.produce(9)
    _noticed_and_accepted(checked)


def cut_where_a_transaction_was_aborted_while_a_planned_slice_waits(checked: CheckedWorld) -> None:
    """Records of the new generation at the planned offsets would hide that those before them were never read."""
    world = checked.world
    _published_with_an_aborted_tail(checked, 3)
    checked.run()
    world.produce(6)
    checked.well(world.plan())
    world.truncate(9)
    world.produce(30)
    checked.refused(world.process(max(checked.oracle.manifests)), TopicChanged)
    _noticed_and_accepted(checked)


def cut_where_only_a_transaction_that_was_aborted_is_published_and_grown_again(checked: CheckedWorld) -> None:
    world = checked.world
    _published_with_an_aborted_tail(checked, 0)
    world.truncate(5)
    world.produce(9)
    _noticed_and_accepted(checked)


def cut_where_a_transaction_was_aborted_below_what_was_published_since(checked: CheckedWorld) -> None:
    """The last published record is another one, and what was cut begins below the range that it is in."""
    world = checked.world
    _published_with_an_aborted_tail(checked, 3)
    world.produce(4)
    checked.run()
    world.truncate(9)
    world.produce(15)
    _noticed_and_accepted(checked)


def cut_and_grown_again_behind_an_attempt_that_has_looked(checked: CheckedWorld) -> None:
    """Two slices of a partition are at work. The older has read records from before the cut, has looked at the log, and
    publishes last; the newer would have hidden that."""
    world, older = checked.world, _first_slice(checked)
    checked(world.run_to(older, "publish.receipt"))
    _cut_and_grown_past_it(checked)
    checked.refused(world.process(2), TopicChanged)
    checked.well(older)
    _accepted_from(checked, 0)


def cut_and_grown_again_behind_an_attempt_that_has_not_looked(checked: CheckedWorld) -> None:
    """As above, but the newer looks and publishes first: then the older finds its own records gone."""
    world, older = checked.world, _first_slice(checked)
    checked(world.run_to(older, "stage.done"))
    _cut_and_grown_past_it(checked)
    checked.well(world.process(2))
    checked.refused(older, TopicChanged)
    checked.settle()


def cut_and_grown_again_behind_an_attempt_that_died_after_it_had_put(checked: CheckedWorld) -> None:
    """The next attempt will find what it put and publish it, so the newer must not hide that."""
    world = checked.world
    checked.kill_at(_first_slice(checked), "publish.before_mark")
    _cut_and_grown_past_it(checked)
    checked.refused(world.process(2), TopicChanged)
    assert checked.well(world.process(1)).result.ending is Ending.RECOVERED  # type: ignore[attr-defined]
    _accepted_from(checked, 0)


def cut_below_an_earlier_generation_while_the_first_slice_of_the_next_is_read(checked: CheckedWorld) -> None:
    """The present generation has published nothing, so the slice is compared with what the earlier one has."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.produce(5)
    checked.run()
    _cut_and_accepted(checked, 5)
    world.produce(5)
    checked.well(world.plan())
    attempt = world.process(3)
    checked(world.run_to(attempt, "attempt.started"))
    world.truncate(7)
    world.produce(9)
    checked.refused(attempt, TopicChanged)
    _accepted_from(checked, 3)


def cut_and_grown_again_after_retention_took_what_is_published(checked: CheckedWorld) -> None:
    """Nothing that is published is left to compare, and nothing unread was lost."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.produce(10)
    world.delete_records(1 / 3)
    world.truncate(5)
    world.produce(9)
    checked.run()
    checked.settle()


def a_log_that_only_goes_on(checked: CheckedWorld) -> None:
    """End marks of transactions, aborted records, other leaders, retention, unpublished slices: none is refused."""
    world = checked.world
    world.produce(3)
    world.begin()
    world.produce(3)
    world.end(commit=True)
    checked.run()
    world.log("a", 0).leader_epoch += 1
    checked.run()
    world.begin()
    world.produce(4)
    world.end(commit=False)
    checked.run()  # a range without a record that may be read
    world.produce(7)
    checked.well(world.plan())
    checked.well(world.plan())
    world.delete_records(0.5)
    checked.well(world.plan())
    checked.settle()


def truncated_while_an_older_slice_is_unread(checked: CheckedWorld) -> None:
    """Offsets below the truncation stay planned, and those that newer slices published are not read again."""
    world = checked.world
    world.produce(14)
    checked.well(world.plan())
    checked.well(world.process(2))
    checked.well(world.process(3))
    world.truncate(2)
    checked.refused(world.plan(), TopicChanged)
    world.produce(6)
    checked.well(world.accept_truncation())
    checked.run()
    assert world.database.manifests.get(1).state is ManifestState.PLANNED
    checked.settle()


def _newest_slice_is_published_and_an_older_one_stands_at(checked: CheckedWorld, where: str) -> Actor:
    """Three slices; the last is published, the second holds records of the log as it was. Then the log is cut into the
    second and grows again past its end, and a plan is refused from the third on: nothing below it is published."""
    world = checked.world
    world.produce(14)
    checked.well(world.plan())
    second = world.process(2)
    checked(world.run_to(second, where))
    checked.well(world.process(3))
    world.truncate(7)
    world.produce(9)
    checked.refused(world.plan(), TopicChanged)
    return second


def published_from_the_old_log_after_a_truncation_was_noticed(checked: CheckedWorld) -> None:
    """The decision looks again, so what came after the refusal cannot hold up what is still to be read."""
    second = _newest_slice_is_published_and_an_older_one_stands_at(checked, "publish.before_record")
    checked.refused(checked.world.accept_truncation(), IllegalTransition)
    checked.well(second)
    checked.well(checked.world.accept_truncation())
    checked.run()
    checked.settle()


def put_from_the_old_log_before_a_truncation_is_accepted(checked: CheckedWorld) -> None:
    """All of it is put and only the mark is missing: that comes first."""
    second = _newest_slice_is_published_and_an_older_one_stands_at(checked, "publish.before_mark")
    checked(checked.world.kill(second))
    checked.refused(checked.world.accept_truncation(), IllegalTransition)
    assert checked.well(checked.world.process(2)).result.ending is Ending.RECOVERED  # type: ignore[attr-defined]
    checked.well(checked.world.accept_truncation())
    checked.run()
    checked.settle()


def recorded_from_the_old_log_after_a_truncation_was_accepted(checked: CheckedWorld) -> None:
    """The attempt has lost its session, so nobody waits for it. What it records when it wakes is never published."""
    second = _newest_slice_is_published_and_an_older_one_stands_at(checked, "publish.before_record")
    checked(checked.world.cut(second))
    checked.well(checked.world.accept_truncation())
    checked.end(second)
    checked.run()
    checked.settle()
    assert checked.world.database.manifests.get(2).published_attempt == 2  # not what the first had read


def truncated_again_below_the_start_of_the_second_generation(checked: CheckedWorld) -> None:
    """What the first generation published is compared too; the second has published nothing that could be."""
    world = checked.world
    world.produce(10)
    checked.run()
    _cut_and_accepted(checked, 3)
    world.truncate(3)
    world.produce(9)
    _accepted_from(checked, 4)


def truncated_again_below_what_the_second_generation_published(checked: CheckedWorld) -> None:
    world = checked.world
    world.produce(10)
    checked.run()
    _cut_and_accepted(checked, 3)
    world.produce(5)
    checked.run()
    world.truncate(8)
    world.produce(12)
    _accepted_from(checked, 4)


def _cut_inside_of_the_second_manifest(checked: CheckedWorld) -> None:
    """Offsets 5 and 6 are what is left of it; the second generation begins at 7."""
    for _ in range(2):
        checked.world.produce(5)
        checked.run()
    _cut_and_accepted(checked, 3)


def truncated_again_inside_of_what_a_cut_has_left_of_a_manifest(checked: CheckedWorld) -> None:
    """No published manifest ends there: that another leader took offset 6 in is all that shows it."""
    _cut_inside_of_the_second_manifest(checked)
    checked.world.truncate(1)
    checked.world.produce(9)
    _accepted_from(checked, 6)


def truncated_again_inside_of_what_a_cut_has_left_below_what_is_published_since(checked: CheckedWorld) -> None:
    _cut_inside_of_the_second_manifest(checked)
    checked.world.produce(5)
    checked.run()
    checked.world.truncate(6)
    checked.world.produce(10)
    _accepted_from(checked, 6)


def truncated_again_inside_of_what_a_cut_has_left_while_a_slice_waits(checked: CheckedWorld) -> None:
    """Published, the slice would hide that offset 6 was never read."""
    world = checked.world
    _cut_inside_of_the_second_manifest(checked)
    world.produce(5)
    checked.well(world.plan())
    world.truncate(6)
    world.produce(10)
    checked.refused(world.process(3), TopicChanged)
    _accepted_from(checked, 6)


def truncated_where_the_end_of_a_transaction_is_the_last_that_is_left_of_a_manifest(checked: CheckedWorld) -> None:
    """There is no record at the last offset below the cut, and those behind it are rightly of another leader."""
    world = checked.world
    world.begin()
    world.produce(3)
    world.end(commit=True)
    world.produce(1)
    checked.run()
    _cut_and_accepted(checked, 1)
    world.produce(4)
    checked.run()
    checked.settle()


def restored_from_before_a_truncation_was_accepted(checked: CheckedWorld) -> None:
    """The lake has records of two generations of a partition, whose offsets overlap."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.snapshot()
    world.produce(5)
    checked.run()
    _cut_and_accepted(checked, 3)
    world.produce(5)
    checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def restored_from_before_a_truncation_was_accepted_while_slices_waited(checked: CheckedWorld) -> None:
    """Only the later generation has left records. What lies below its first offset is of this log, and still unread."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.snapshot()
    world.produce(10)
    checked.well(world.plan())
    _cut_and_accepted(checked, 3)
    world.produce(5)
    checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def restored_from_before_a_topic_was_recreated_and_then_truncated(checked: CheckedWorld) -> None:
    """Nothing tells of the first generation of the new log, which was planned and never read."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.snapshot()
    world.recreate(partitions=1)
    world.produce(10)
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_topic())
    checked.well(world.plan())
    _cut_and_accepted(checked, 3)
    world.produce(5)
    checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def restored_from_before_the_first_plan_and_then_truncated(checked: CheckedWorld) -> None:
    """The database is empty: that there was a first generation is known by the number of the second one alone."""
    world = checked.world
    world.snapshot()
    world.produce(10)
    checked.well(world.plan())
    _cut_and_accepted(checked, 3)
    world.produce(5)
    checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def _restored_from_when_the_topic_was_gone(checked: CheckedWorld, *, truncated: bool) -> None:
    """The copy has an ended chain alone; since then the same topic is back."""
    world = checked.world
    world.produce(5)
    checked.run()
    gone = world.broker.by_name.pop("a")
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_topic())
    world.snapshot()
    world.broker.by_name["a"] = gone
    world.produce(10)
    if truncated:
        checked.well(world.plan())
        _cut_and_accepted(checked, 3)
        world.produce(5)
    checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def restored_from_when_the_topic_was_gone(checked: CheckedWorld) -> None:
    _restored_from_when_the_topic_was_gone(checked, truncated=False)


def restored_from_when_the_topic_was_gone_and_it_is_back_and_was_truncated(checked: CheckedWorld) -> None:
    """What the ended chain has published is not read again below the cut."""
    _restored_from_when_the_topic_was_gone(checked, truncated=True)


def _planned_and_never_read(checked: CheckedWorld, lost: int, more: int) -> None:
    """The log is cut, which is accepted. What it then grows by waits when it is cut again: no record is of it."""
    _cut_and_accepted(checked, lost)
    checked.world.produce(more)
    checked.well(checked.world.plan())


def restored_and_the_generation_between_two_has_left_no_record(checked: CheckedWorld) -> None:
    """The second began at 7, inside of what the first has published, and ended at 12."""
    world = checked.world
    world.produce(5)
    checked.run()
    world.snapshot()
    world.produce(15)
    checked.run()
    _planned_and_never_read(checked, 13, 10)
    _cut_and_accepted(checked, 5)
    world.produce(5)
    checked.run()
    assert restored(world, checked.oracle, killed_at=45)
    checked.settle(after_restore=True)


def adopted_by_an_empty_database_and_every_second_generation_has_left_no_record(checked: CheckedWorld) -> None:
    """Five generations. The second was cut away with the third; the fourth began at 9 and ended at 13."""
    world = checked.world
    world.snapshot()
    world.produce(15)
    checked.run()
    _planned_and_never_read(checked, 3, 10)
    _cut_and_accepted(checked, 5)
    world.produce(5)
    checked.run()
    _planned_and_never_read(checked, 13, 7)
    _cut_and_accepted(checked, 3)
    world.produce(12)
    checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def restored_from_an_older_copy(checked: CheckedWorld) -> None:
    world = checked.world
    checked.planned()
    checked.well(world.process(1))
    world.snapshot()
    checked.well(world.process(2))
    world.produce(9)
    checked.run()
    world.change_code()
    checked.well(world.process(1, replay=True))
    assert restored(world, checked.oracle, killed_at=20)
    checked.settle(after_restore=True)


def restored_and_an_attempt_without_a_record_is_forgotten(checked: CheckedWorld) -> None:
    """Its manifest's id is not used again, since a later manifest left a record; its offsets are planned again."""
    world = checked.world
    checked.run()
    world.snapshot()
    world.produce(5)
    checked.well(world.plan())
    forgotten = world.process(1)
    checked.kill_at(forgotten, "publish.before_record")
    world.produce(5)
    later = checked.well(world.plan())
    for manifest in later.result.manifests:  # type: ignore[attr-defined]
        checked.well(world.process(manifest))
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def restored_and_only_the_lake_has_what_retention_took(checked: CheckedWorld) -> None:
    """An attempt has put its files and died before its record. No manifest stands for them, nor for their records: so
    ``repair`` leaves the only copy, and a person moves it out of the lake."""
    world = checked.world
    checked.run()
    world.snapshot()
    world.produce(5)
    checked.well(world.plan())
    checked.kill_at(world.process(1), "publish.before_record")
    world.produce(5)
    later = checked.well(world.plan())
    for manifest in later.result.manifests:  # type: ignore[attr-defined]
        checked.well(world.process(manifest))
    assert restored(world, checked.oracle, killed_at=None)
    world.delete_records(1.0)
    moved = world.reached["a file was moved out of the lake"]
    checked.settle(after_restore=True)
    assert world.reached["a file was moved out of the lake"] > moved


def processed_while_a_truncation_is_not_accepted(checked: CheckedWorld) -> None:
    """New records above the cut belong to the next generation; with them the log is as long as before."""
    world = checked.world
    world.produce(5)
    checked.well(world.plan())
    world.truncate(3)
    checked.refused(world.plan(), TopicChanged)
    world.produce(10)
    checked.refused(world.process(1), TopicChanged)
    checked.well(world.accept_truncation())
    checked.run()
    checked.settle()


def replayed_while_a_truncation_is_not_accepted(checked: CheckedWorld) -> None:
    world = checked.world
    world.produce(5)
    checked.well(world.plan())
    checked.well(world.process(1))
    world.truncate(3)
    checked.refused(world.plan(), TopicChanged)
    world.produce(10)
    world.change_code()
    checked.refused(world.process(1, replay=True), TopicChanged)
    checked.well(world.accept_truncation())
    checked.run()
    checked.settle()


def _truncated_while_a_replay_stands_at(where: str) -> Schedule:
    """A decision does not concern done manifests, so it does not check whether an attempt is at work on them."""

    def schedule(checked: CheckedWorld) -> None:
        world = checked.world
        world.produce(5)
        checked.well(world.plan())
        checked.well(world.process(1))
        world.change_code()
        replay = world.process(1, replay=True)
        while not replay.life.at.startswith(where):
            checked(world.step(replay, operations=1) if where.startswith("sql") else world.step(replay))
        world.truncate(3)
        checked.refused(world.plan(), TopicChanged)
        world.produce(10)
        checked.well(world.accept_truncation())
        checked.refused(replay, TopicChanged)
        checked.run()
        checked.settle()

    return schedule


def truncated_again_while_an_older_slice_is_unread(checked: CheckedWorld) -> None:
    """The slice stayed planned below the first truncation; the second, not accepted yet, reaches into it."""
    world = checked.world
    world.produce(14)
    checked.well(world.plan())
    checked.well(world.process(1))
    _cut_and_accepted(checked, 4)
    world.truncate(4)
    checked.refused(world.plan(), TopicChanged)
    world.produce(8)
    checked.refused(world.process(2), TopicChanged)
    checked.well(world.accept_truncation())
    checked.run()
    checked.settle()


def truncated_twice_and_adopted_by_an_empty_database(checked: CheckedWorld) -> None:
    """The first generation lost a part in the middle; what the second published there is not read again."""
    world = checked.world
    world.snapshot()
    world.produce(14)
    checked.well(world.plan())
    checked.well(world.process(1))
    checked.well(world.process(3))
    for lost, more in ((9, 10), (3, 5)):
        _cut_and_accepted(checked, lost)
        world.produce(more)
        checked.run()
    assert restored(world, checked.oracle, killed_at=None)
    checked.settle(after_restore=True)


def adopted_while_an_attempt_is_at_work(checked: CheckedWorld) -> None:
    """The record is of a killed attempt; an attempt is at work on another manifest."""
    world = checked.world
    checked.planned()
    killed = world.process(1)
    checked.kill_at(killed, "publish.before_mark")
    at_work = world.process(2)
    checked(world.run_to(at_work, "stage.done"))
    checked.refused(world.adopt(), IllegalTransition)
    checked.well(at_work)
    checked.settle()


def restored_and_what_the_lake_has_is_not_lost(checked: CheckedWorld) -> None:
    """Retention removed offsets that are unread in the restored copy; the lake has their records."""
    world = checked.world
    checked.planned()
    world.snapshot()
    checked.well(world.process(1))
    checked.well(world.process(2))
    world.restore()
    checked.oracle.forget()
    checked.oracle.behind = True
    world.delete_records(1.0)
    checked.refused(world.accept_loss(), DatabaseBehindLake)
    checked.well(world.adopt())
    checked.oracle.behind = False
    checked.settle(after_restore=True)


def _refused_before_its_turn(checked: CheckedWorld, manifest: int, first: int) -> None:
    error = checked.end(checked.world.process(manifest)).error
    if not isinstance(error, WorkFailed) or not error.what.startswith(f"manifest {first}, which is "):
        raise Violated(f"I16 order of a key: manifest {manifest} did not wait for manifest {first}: {error!r}")


def _finished_as_the_errors_say(checked: CheckedWorld, manifest: int, first: int) -> None:
    """A sink that keeps the order is refused until the manifest with earlier records is done; the lake goes on."""
    world = checked.world
    _refused_before_its_turn(checked, manifest, first)
    checked.well(world.process(first))
    checked.well(world.process(manifest))


def cut_and_what_comes_after_the_cut_is_tried_first(checked: CheckedWorld) -> None:
    """Manifest 1 stays planned below the cut; manifest 3 holds what the log has grown by since."""
    world = checked.world
    world.produce(15)
    checked.well(world.plan())
    world.produce(5)
    checked.well(world.plan())
    _cut_and_accepted(checked, 5)
    world.produce(9)
    checked.well(world.plan())
    _finished_as_the_errors_say(checked, 3, first=1)
    checked.settle()


def cut_twice_ever_lower_and_the_newest_generation_is_tried_first(checked: CheckedWorld) -> None:
    """The second generation has nothing left; what is below both cuts is in the first."""
    world = checked.world
    world.produce(10)
    checked.well(world.plan())
    world.produce(10)
    checked.well(world.plan())
    _cut_and_accepted(checked, 8)
    world.produce(6)
    checked.well(world.plan())
    _cut_and_accepted(checked, 8)
    world.produce(6)
    checked.well(world.plan())
    _finished_as_the_errors_say(checked, 4, first=1)
    checked.settle()


def cut_twice_ever_higher_and_the_generations_are_tried_from_the_newest_on(checked: CheckedWorld) -> None:
    """Each of three generations holds a part of the log that is still to be read."""
    world = checked.world
    world.produce(20)
    checked.well(world.plan())
    _cut_and_accepted(checked, 12)
    world.produce(12)
    checked.well(world.plan())
    _cut_and_accepted(checked, 6)
    world.produce(6)
    checked.well(world.plan())
    _refused_before_its_turn(checked, 3, first=1)
    _finished_as_the_errors_say(checked, 2, first=1)
    checked.well(world.process(3))
    checked.settle()


def recreated_and_the_new_topic_is_tried_first(checked: CheckedWorld) -> None:
    """Another log: what is unread of the old one is given up, so nothing of it comes later."""
    world = checked.world
    world.produce(10)
    checked.well(world.plan())
    world.recreate(partitions=1)
    world.produce(5)
    checked.refused(world.plan(), TopicChanged)
    checked.well(world.accept_topic())
    checked.well(world.plan())
    checked.well(world.process(2))
    checked.settle()


TRUNCATED = {f"truncated while a replay stands at {where}": _truncated_while_a_replay_stands_at(where) for where in (
    "sql evidence_apart", "failpoint read.before", "failpoint stage.done",
)}  # fmt: skip
IN_ORDER = (
    cut_and_what_comes_after_the_cut_is_tried_first,
    cut_twice_ever_lower_and_the_newest_generation_is_tried_first,
    cut_twice_ever_higher_and_the_generations_are_tried_from_the_newest_on,
    recreated_and_the_new_topic_is_tried_first,
)
OF_GENERATIONS = (
    recreated_while_it_is_read,
    recreated_between_two_questions_of_a_plan,
    retention_takes_what_was_not_read,
    retention_takes_what_only_lacks_its_mark,
    accepted_as_gone_and_back_again,
    accepted_as_gone_and_back_again_with_a_shorter_log,
    accepted_as_gone_and_back_again_with_a_log_cut_inside_of_a_manifest,
    truncated_below_the_chain,
    extended_back_after_a_cut,
    taken_for_cut_where_all_is_published,
    taken_for_cut_below_a_published_slice_while_others_wait,
    cut_at_30_and_grown_to_40_before_anybody_looks,
    cut_at_30_and_grown_past_50_before_anybody_looks,
    cut_twice_and_grown_again_before_anybody_looks,
    cut_and_grown_again_in_a_transaction_that_is_open,
    cut_where_a_transaction_was_aborted_and_grown_again,
    cut_where_a_transaction_was_aborted_while_a_planned_slice_waits,
    cut_where_only_a_transaction_that_was_aborted_is_published_and_grown_again,
    cut_where_a_transaction_was_aborted_below_what_was_published_since,
    cut_and_grown_again_behind_an_attempt_that_has_looked,
    cut_and_grown_again_behind_an_attempt_that_has_not_looked,
    cut_and_grown_again_behind_an_attempt_that_died_after_it_had_put,
    cut_and_grown_again_while_planned_slices_wait,
    cut_below_an_earlier_generation_while_the_first_slice_of_the_next_is_read,
    cut_and_grown_again_after_retention_took_what_is_published,
    a_log_that_only_goes_on,
    truncated_while_an_older_slice_is_unread,
    published_from_the_old_log_after_a_truncation_was_noticed,
    put_from_the_old_log_before_a_truncation_is_accepted,
    recorded_from_the_old_log_after_a_truncation_was_accepted,
    truncated_again_below_the_start_of_the_second_generation,
    truncated_again_below_what_the_second_generation_published,
    truncated_again_inside_of_what_a_cut_has_left_of_a_manifest,
    truncated_again_inside_of_what_a_cut_has_left_below_what_is_published_since,
    truncated_again_inside_of_what_a_cut_has_left_while_a_slice_waits,
    truncated_where_the_end_of_a_transaction_is_the_last_that_is_left_of_a_manifest,
    restored_from_before_a_truncation_was_accepted,
    restored_from_before_a_truncation_was_accepted_while_slices_waited,
    restored_from_before_a_topic_was_recreated_and_then_truncated,
    restored_from_before_the_first_plan_and_then_truncated,
    restored_from_when_the_topic_was_gone,
    restored_from_when_the_topic_was_gone_and_it_is_back_and_was_truncated,
    restored_and_the_generation_between_two_has_left_no_record,
    adopted_by_an_empty_database_and_every_second_generation_has_left_no_record,
    restored_from_an_older_copy,
    restored_and_an_attempt_without_a_record_is_forgotten,
    restored_and_only_the_lake_has_what_retention_took,
    processed_while_a_truncation_is_not_accepted,
    replayed_while_a_truncation_is_not_accepted,
    truncated_again_while_an_older_slice_is_unread,
    truncated_twice_and_adopted_by_an_empty_database,
    adopted_while_an_attempt_is_at_work,
    restored_and_what_the_lake_has_is_not_lost,
)
