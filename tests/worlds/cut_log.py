"""Removes the tail of a partition's log, on a broker that only one test uses."""

from pathlib import Path

from tests.worlds.world import World


def segment(world: World, partition: int = 0) -> Path:
    return world.broker.state / "data" / f"{world.topic}-{partition}" / f"{0:020d}.log"


def cut(log: Path, size: int) -> None:
    """As after a power failure: the tail of the segment never reached the disk, nor did its indexes."""
    with log.open("r+b") as file:
        file.truncate(size)
    for index in log.parent.glob("*index"):
        index.unlink()
