"""The end of a schedule: faults stop, people decide what they are asked, and everything planned is done."""

from tests.faults.model_world import WHY, ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark import accepting, adoption, repairing
from tidemark.errors import (
    Blocked,
    DatabaseBehindLake,
    DataLost,
    NotFound,
    TidemarkError,
    TopicChanged,
    Unavailable,
)
from tidemark.lifecycle import Lifecycle
from tidemark.model import ManifestState, RunKind
from tidemark.planning import Tick

ROUNDS = 30  # a plan takes at most `max_slices` slices; no schedule needs more than a few decisions


def settle(world: ModelWorld, oracle: Oracle, *, wake: bool, restored: bool = False) -> None:
    """Let everybody end (``wake``) or kill them, then do what a person would do until nothing is left."""
    for actor in sorted(world.actors, key=lambda one: not one.holds_lock):
        world.finish(actor) if wake else world.kill(actor)
        oracle.check()
    for topic, partition in list(world.open):
        for name, one in world.broker.by_name.items():
            if one.topic_id == topic:
                world.end(topic=name, partition=partition, commit=wake)
    for number in range(ROUNDS):
        if _round(world, f"settle-{number}"):
            break
        oracle.check()
    else:
        raise Violated(f"I24 progress: nothing settles: {[str(one) for one in world.onlooker().unfinished()]}")
    if restored:  # what an attempt left that the restored database never knew of, no attempt takes away
        repairing.repair(world.onlooker(), WHY, dry_run=False)
    oracle.check_quiet()


def _round(world: ModelWorld, run_key: str) -> bool:
    """Plan and retry once; true when nothing is left to do."""
    world.surgery = True
    own = world.onlooker()
    try:
        planned = own.plan(Tick(run_key, RunKind.MANUAL, None))
    except TidemarkError as refused:
        for one in own.unfinished():  # what only lacks its mark may not be given up
            _retried(world, own, one.id)
        _decide(world, own, refused)
        return False
    own.publisher.sweep()
    blocked = own.database.manifests(own.pipeline.name, [ManifestState.BLOCKED])
    todo = [*own.unfinished(), *(each for one in blocked for each in own.unfinished(one.id))]
    errors = [error for one in todo if (error := _retried(world, own, one.id))]
    for error in errors:
        _decide(world, own, error)
    return planned.reached and not errors


def _retried(world: ModelWorld, own: Lifecycle, manifest: int) -> TidemarkError | None:
    try:
        own.process(manifest, world.stage)
    except Blocked:
        return None  # the oracle says whether it may be
    except TidemarkError as error:
        return error
    return None


def _decide(world: ModelWorld, own: Lifecycle, error: TidemarkError) -> None:
    """What the error's next step says."""
    match error:
        case DataLost():
            if _lost(own):
                accepting.accept_loss(own, WHY, dry_run=False)
        case DatabaseBehindLake():
            adoption.adopt(own, WHY, dry_run=False)
        case NotFound():
            world.broker.create(str(error.context.get("topic", "a")), 1)
        case TopicChanged():
            for chain in own.database.chains(own.pipeline.name):
                if chain.blocked and chain.blocked_end is None:
                    accepting.accept_topic(own, chain.at.topic, WHY, dry_run=False)
                    return  # it ended all chains of the topic
                if chain.blocked:
                    at = chain.at
                    accepting.accept_truncation(own, at.topic, at.partition, WHY, start=None, dry_run=False)
        case Unavailable():
            pass  # offsets that a truncation took: the next plan says so
        case _:
            raise error


def _lost(own: Lifecycle) -> bool:
    try:
        accepting.accept_loss(own, WHY, dry_run=True)
    except NotFound:
        return False
    return True
