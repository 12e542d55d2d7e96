"""Records that lie in the last whole hours, for runs that cut by time."""

import json
from datetime import UTC, datetime, timedelta

from tests.worlds.world import EPOCH, World


def last_hour() -> datetime:
    """The newest full hour, at which an hourly schedule fires."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def produce_at(world: World, count: int, moment: datetime) -> None:
    """Like ``World.produce``, stamped ``moment``."""
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
    """``each`` records in the middle of each of the ``hours`` before ``hour``."""
    for back in range(hours, 0, -1):
        produce_at(world, each, hour - timedelta(hours=back) + timedelta(minutes=30))
