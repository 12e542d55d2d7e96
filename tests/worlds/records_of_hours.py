"""Records of the last full hours, for runs that cut by time."""

import json
import time
from datetime import UTC, datetime, timedelta

from tests.worlds.world import EPOCH, World

_LONGEST_S = 240  # a test of a schedule on a busy machine


def last_hour() -> datetime:
    """The start of the current hour, when an hourly schedule fires."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def last_tick(period: timedelta) -> datetime:
    """When a schedule of ``period``, an hour or a day, was due last; a time is waited out that would come meanwhile.

    Airflow would start a run at it, which is one more than a test expects.
    """
    begun = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    if period > timedelta(hours=1):
        begun = begun.replace(hour=0)
    left = (begun + period - datetime.now(UTC)).total_seconds()
    if left > _LONGEST_S:
        return begun
    time.sleep(left)
    return begun + period


def produce_at(world: World, count: int, moment: datetime) -> None:
    """As ``World.produce``, with the timestamp ``moment``."""
    producer = world.broker.producer()
    for number in range(world.produced, world.produced + count):
        at = EPOCH + timedelta(minutes=number * 7 % 300)
        value = {"n": number, "at": at.isoformat(), "name": f"r{number}"}
        producer.produce(
            world.topic,
            json.dumps(value),
            partition=number % world.partitions,
            timestamp=int(moment.timestamp() * 1000),
        )
    assert producer.flush(30) == 0
    world.produced += count


def produce_hours(world: World, hour: datetime, hours: int, each: int = 20) -> None:
    """``each`` records in the middle of each of the last ``hours`` hours before ``hour``."""
    for back in range(hours, 0, -1):
        produce_at(world, each, hour - timedelta(hours=back) + timedelta(minutes=30))
