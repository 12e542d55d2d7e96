"""A world that its oracle checks after every step, and the methods with which schedules are written."""

from collections.abc import Callable

from tests.faults.actors import Actor
from tests.faults.end_of_schedule import settle
from tests.faults.model_world import ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark.errors import TidemarkError

Schedule = Callable[["CheckedWorld"], None]


class CheckedWorld:
    """A world and its oracle, which checks after every step: ``checked(world.finish(actor))``."""

    def __init__(self, world: ModelWorld) -> None:
        self.world = world
        self.oracle = Oracle(world)

    def __call__(self, _: None) -> None:
        self.oracle.check()

    def end(self, actor: Actor) -> Actor:
        """Let the actor run to its end, good or bad."""
        self(self.world.finish(actor))
        return actor

    def well(self, actor: Actor) -> Actor:
        """Let the actor run to its end, which must have no error."""
        assert self.end(actor).error is None, actor.error
        return actor

    def refused(self, actor: Actor, kind: type[TidemarkError]) -> None:
        error = self.end(actor).error
        if not isinstance(error, kind):
            raise Violated(f"I22 never silent: {actor.name} said {error!r}, not {kind.__name__}")

    def kill_at(self, actor: Actor, point: str) -> None:
        """Let the actor run to a failpoint and kill it there."""
        self(self.world.run_to(actor, point))
        self(self.world.kill(actor))

    def settle(self, *, wake: bool = True, after_restore: bool = False) -> None:
        settle(self.world, self.oracle, wake=wake, restored=after_restore)

    def planned(self, records: int = 5) -> None:
        """Produce records in both partitions and plan them."""
        self.world.produce(records)
        self.world.produce(records, partition=1, bad=True)
        self.well(self.world.plan())

    def run(self) -> None:
        """Plan up to now and process all that was planned."""
        planner = self.well(self.world.plan())
        for manifest in getattr(planner.result, "manifests", ()):
            self.well(self.world.process(manifest))
