"""The end of a schedule: faults stop, people decide what they are asked, and everything planned is done."""

from tests.faults.model_world import WHY, ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark.errors import Blocked, DatabaseBehindLake, DataLost, NotFound, TidemarkError, TopicChanged, Unavailable
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import unfinished
from tidemark.manifest import ManifestState, RunKind
from tidemark.operations import adopt, decisions, repair

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
        raise Violated(f"I24 progress: nothing settles: {[str(one) for one in unfinished(world.onlooker())]}")
    if restored:  # what an attempt left that the restored database never knew of, no attempt takes away
        repair.repair(world.onlooker(), WHY, dry_run=False)
    oracle.check_quiet()


def _round(world: ModelWorld, run_key: str) -> bool:
    """Plan and retry once; true when nothing is left to do."""
    world.surgery = True
    own = world.onlooker()
    try:
        planned = plan(own, Tick(run_key, RunKind.MANUAL, None))
    except TidemarkError as refused:
        for one in unfinished(own):  # what only lacks its mark may not be given up
            _retried(world, own, one.id)
        _decide(world, own, refused)
        return False
    Publisher(own).sweep()
    blocked = own.database.manifests(own.pipeline_name, [ManifestState.BLOCKED])
    todo = [*unfinished(own), *(each for one in blocked for each in unfinished(own, one.id))]
    errors = [error for one in todo if (error := _retried(world, own, one.id))]
    for error in errors:
        _decide(world, own, error)
    return planned.reached and not errors


def _retried(world: ModelWorld, own: Context, manifest: int) -> TidemarkError | None:
    try:
        process(own, manifest, world.stage)
    except Blocked:
        return None  # the oracle says whether it may be
    except TidemarkError as error:
        return error
    return None


def _decide(world: ModelWorld, own: Context, error: TidemarkError) -> None:
    """What the error's next step says."""
    match error:
        case DataLost():
            if _lost(own):
                decisions.accept_loss(own, WHY, dry_run=False)
        case DatabaseBehindLake():
            adopt.adopt(own, WHY, dry_run=False)
        case NotFound():
            world.broker.create(str(error.context.get("topic", "a")), 1)
        case TopicChanged():
            for chain in own.database.chains(own.pipeline_name):
                if chain.blocked and chain.blocked_end is None:
                    decisions.accept_topic(own, chain.at.topic, WHY, dry_run=False)
                    return  # it ended all chains of the topic
                if chain.blocked:
                    at = chain.at
                    decisions.accept_truncation(own, at.topic, at.partition, WHY, start=None, dry_run=False)
        case Unavailable():
            pass  # offsets that a truncation took: the next plan says so
        case _:
            raise error


def _lost(own: Context) -> bool:
    try:
        decisions.accept_loss(own, WHY, dry_run=True)
    except NotFound:
        return False
    return True
