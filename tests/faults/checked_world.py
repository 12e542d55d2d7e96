"""A world with the oracle that looks after every step, and the words schedules are written in."""

from collections.abc import Callable

from tests.faults.actors import Actor
from tests.faults.end_of_schedule import settle
from tests.faults.model_world import ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark.errors import TidemarkError

Schedule = Callable[["CheckedWorld"], None]


class CheckedWorld:
    """One world with its oracle, which looks after every step: ``checked(world.finish(actor))``."""

    def __init__(self, world: ModelWorld) -> None:
        self.world = world
        self.oracle = Oracle(world)

    def __call__(self, _: None) -> None:
        self.oracle.check()

    def end(self, actor: Actor) -> Actor:
        """To its end, whatever that is."""
        self(self.world.finish(actor))
        return actor

    def well(self, actor: Actor) -> Actor:
        """To its end, which must be good."""
        assert self.end(actor).error is None, actor.error
        return actor

    def refused(self, actor: Actor, kind: type[TidemarkError]) -> None:
        error = self.end(actor).error
        if not isinstance(error, kind):
            raise Violated(f"I22 never silent: {actor.name} said {error!r}, not {kind.__name__}")

    def settle(self, *, wake: bool = True, after_restore: bool = False) -> None:
        settle(self.world, self.oracle, wake=wake, restored=after_restore)

    def planned(self, records: int = 5) -> None:
        """Records of both partitions, planned and not done."""
        self.world.produce(records)
        self.world.produce(records, partition=1, bad=True)
        self.well(self.world.plan())

    def run(self) -> None:
        """Plan up to now and do it all."""
        planner = self.well(self.world.plan())
        for manifest in getattr(planner.result, "manifests", ()):
            self.well(self.world.process(manifest))
