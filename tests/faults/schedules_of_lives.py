"""Schedules about lives of a topic and of the database: retention, truncation, recreation, restored copies."""

from tests.faults.checked_world import Play, Schedule
from tests.faults.restored_database import restored
from tidemark.errors import DatabaseBehindLake, DataLost, IllegalTransition, TopicChanged
from tidemark.model import ManifestState
from tidemark.publishing import Ending


def recreated_while_it_is_read(play: Play) -> None:
    """The new topic is long enough to be read at the old offsets, without any error."""
    world = play.world
    play.planned()
    attempt = world.process(1)
    play(world.run_to(attempt, "attempt.started"))
    play(world.step(attempt))
    world.recreate()
    world.produce(20)
    world.produce(20, partition=1)
    play.refused(attempt, TopicChanged)
    play.refused(world.plan(), TopicChanged)
    play.settle()


def retention_takes_what_was_not_read(play: Play) -> None:
    world = play.world
    play.planned()
    world.produce(4)
    world.delete_records(1.0)
    play.refused(world.plan(), DataLost)
    play.refused(world.process(1), DataLost)
    play.well(world.accept_loss())
    play.run()
    play.settle()


def retention_takes_what_only_lacks_its_mark(play: Play) -> None:
    """Its output is there, so it is neither lost nor may be given up."""
    world = play.world
    play.planned()
    killed = world.process(1)
    play(world.run_to(killed, "publish.before_mark"))
    play(world.kill(killed))
    world.delete_records(1.0)
    play.refused(world.accept_loss(), IllegalTransition)
    assert play.well(world.process(1)).result.ending is Ending.RECOVERED  # type: ignore[attr-defined]
    play.settle()


def accepted_as_gone_and_back_again(play: Play) -> None:
    """It was only out of sight: what is published of it is not read a second time."""
    world = play.world
    world.produce(5)
    play.run()
    gone = world.broker.by_name.pop("a")
    play.refused(world.plan(), TopicChanged)
    play.well(world.accept_topic())
    world.broker.by_name["a"] = gone
    world.produce(5)
    play.run()
    play.settle()


def truncated_below_the_chain(play: Play) -> None:
    world = play.world
    play.run()
    world.produce(6)
    play.run()
    world.truncate(3)
    play.refused(world.plan(), TopicChanged)
    world.produce(9)
    play.refused(world.plan(), TopicChanged)
    play.well(world.accept_truncation())
    play.run()
    play.settle()


def truncated_while_an_older_slice_is_unread(play: Play) -> None:
    """What lies below the truncation stays planned, and what newer slices published of it is not read again."""
    world = play.world
    world.produce(14)
    play.well(world.plan())
    play.well(world.process(2))
    play.well(world.process(3))
    world.truncate(2)
    play.refused(world.plan(), TopicChanged)
    world.produce(6)
    play.well(world.accept_truncation())
    play.run()
    assert world.database.manifest(1).state is ManifestState.PLANNED
    play.settle()


def restored_from_before_a_truncation_was_accepted(play: Play) -> None:
    """The records tell of two lives of one partition, whose offsets overlap."""
    world = play.world
    world.produce(5)
    play.run()
    world.snapshot()
    world.produce(5)
    play.run()
    world.truncate(3)
    play.refused(world.plan(), TopicChanged)
    play.well(world.accept_truncation())
    world.produce(5)
    play.run()
    assert restored(world, play.oracle, killed_at=None)
    play.settle(after_restore=True)


def restored_from_an_older_copy(play: Play) -> None:
    world = play.world
    play.planned()
    play.well(world.process(1))
    world.snapshot()
    play.well(world.process(2))
    world.produce(9)
    play.run()
    world.change_code()
    play.well(world.process(1, replay=True))
    assert restored(world, play.oracle, killed_at=20)
    play.settle(after_restore=True)


def restored_and_an_attempt_without_a_record_is_forgotten(play: Play) -> None:
    """Its manifest gets no number again, since a later one left a record; its offsets are planned anew."""
    world = play.world
    play.run()
    world.snapshot()
    world.produce(5)
    play.well(world.plan())
    forgotten = world.process(1)
    play(world.run_to(forgotten, "publish.before_record"))
    play(world.kill(forgotten))
    world.produce(5)
    later = play.well(world.plan())
    for manifest in later.result.manifests:  # type: ignore[attr-defined]
        play.well(world.process(manifest))
    assert restored(world, play.oracle, killed_at=None)
    play.settle(after_restore=True)


def processed_while_a_truncation_is_not_accepted(play: Play) -> None:
    """Above where the log was cut it holds what the next life will read; with that it is as long as before."""
    world = play.world
    world.produce(5)
    play.well(world.plan())
    world.truncate(3)
    play.refused(world.plan(), TopicChanged)
    world.produce(10)
    play.refused(world.process(1), TopicChanged)
    play.well(world.accept_truncation())
    play.run()
    play.settle()


def replayed_while_a_truncation_is_not_accepted(play: Play) -> None:
    world = play.world
    world.produce(5)
    play.well(world.plan())
    play.well(world.process(1))
    world.truncate(3)
    play.refused(world.plan(), TopicChanged)
    world.produce(10)
    world.change_code()
    play.refused(world.process(1, replay=True), TopicChanged)
    play.well(world.accept_truncation())
    play.run()
    play.settle()


def _truncated_while_a_replay_stands_at(where: str) -> Schedule:
    """Of what is done a person decides nothing, so nobody asked whether an attempt is at work on it."""

    def schedule(play: Play) -> None:
        world = play.world
        world.produce(5)
        play.well(world.plan())
        play.well(world.process(1))
        world.change_code()
        replay = world.process(1, replay=True)
        while not replay.life.at.startswith(where):
            play(world.step(replay, operations=1) if where.startswith("sql") else world.step(replay))
        world.truncate(3)
        play.refused(world.plan(), TopicChanged)
        world.produce(10)
        play.well(world.accept_truncation())
        play.refused(replay, TopicChanged)
        play.run()
        play.settle()

    return schedule


def truncated_again_while_an_older_slice_is_unread(play: Play) -> None:
    """It stayed planned below the first truncation; the second one, noticed and not accepted, reaches into it."""
    world = play.world
    world.produce(14)
    play.well(world.plan())
    play.well(world.process(1))
    world.truncate(4)
    play.refused(world.plan(), TopicChanged)
    play.well(world.accept_truncation())
    world.truncate(4)
    play.refused(world.plan(), TopicChanged)
    world.produce(8)
    play.refused(world.process(2), TopicChanged)
    play.well(world.accept_truncation())
    play.run()
    play.settle()


def truncated_twice_and_adopted_by_an_empty_database(play: Play) -> None:
    """Of the first life a middle part was lost; what the second life published there is not read again."""
    world = play.world
    world.snapshot()
    world.produce(14)
    play.well(world.plan())
    play.well(world.process(1))
    play.well(world.process(3))
    for lost, more in ((9, 10), (3, 5)):
        world.truncate(lost)
        play.refused(world.plan(), TopicChanged)
        play.well(world.accept_truncation())
        world.produce(more)
        play.run()
    assert restored(world, play.oracle, killed_at=None)
    play.settle(after_restore=True)


def adopted_while_an_attempt_is_at_work(play: Play) -> None:
    """The record is of an attempt that died; whoever works on its manifest may be about to remove its output."""
    world = play.world
    play.planned()
    killed = world.process(1)
    play(world.run_to(killed, "publish.before_mark"))
    play(world.kill(killed))
    world.change_code()
    at_work = world.process(1)
    play(world.run_to(at_work, "stage.done"))
    play.refused(world.adopt(), IllegalTransition)
    play.well(at_work)
    play.settle()


def restored_and_what_the_lake_has_is_not_lost(play: Play) -> None:
    """Retention took what the restored copy calls unread, and the lake holds it."""
    world = play.world
    play.planned()
    world.snapshot()
    play.well(world.process(1))
    play.well(world.process(2))
    world.restore()
    play.oracle.forget()
    play.oracle.behind = True
    world.delete_records(1.0)
    play.refused(world.accept_loss(), DatabaseBehindLake)
    play.well(world.adopt())
    play.oracle.behind = False
    play.settle(after_restore=True)


TRUNCATED = {f"truncated while a replay stands at {where}": _truncated_while_a_replay_stands_at(where) for where in (
    "sql newest_attempt", "failpoint read.before", "failpoint stage.done",
)}  # fmt: skip
OF_LIVES = (
    recreated_while_it_is_read,
    retention_takes_what_was_not_read,
    retention_takes_what_only_lacks_its_mark,
    accepted_as_gone_and_back_again,
    truncated_below_the_chain,
    truncated_while_an_older_slice_is_unread,
    restored_from_before_a_truncation_was_accepted,
    restored_from_an_older_copy,
    restored_and_an_attempt_without_a_record_is_forgotten,
    processed_while_a_truncation_is_not_accepted,
    replayed_while_a_truncation_is_not_accepted,
    truncated_again_while_an_older_slice_is_unread,
    truncated_twice_and_adopted_by_an_empty_database,
    adopted_while_an_attempt_is_at_work,
    restored_and_what_the_lake_has_is_not_lost,
)
