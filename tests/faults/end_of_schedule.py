"""Ends a schedule: no more faults, all refusals are decided, and everything planned is processed."""

from contextlib import suppress
from dataclasses import replace

from tests.faults.model_world import NAME, WHY, ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark.errors import (
    Blocked,
    DatabaseBehindLake,
    DataLost,
    IllegalTransition,
    NotFound,
    TidemarkError,
    TopicChanged,
    Unavailable,
    WorkFailed,
)
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.operations import adopt, damage, decisions, repair
from tidemark.operations.audit import differences_of_sink

ROUNDS = 30  # more than any schedule needs: a plan has at most `max_slices` slices


def settle(world: ModelWorld, oracle: Oracle, *, wake: bool, restored: bool = False) -> None:
    """Let all actors end (``wake``) or kill them, then plan, retry and decide as a person would, until all is done."""
    for actor in sorted(world.actors, key=lambda actor: not actor.holds_lock):
        world.finish(actor) if wake else world.kill(actor)
        oracle.check()
    for topic, partition in list(world.open):
        for name, current in world.broker.by_name.items():
            if current.topic_id == topic:
                world.end(topic=name, partition=partition, commit=wake)
    for number in range(ROUNDS):
        if _round(world, oracle, f"settle-{number}"):
            break
        oracle.check()
    else:
        raise Violated(f"I24 progress: nothing settles: {[str(manifest) for manifest in unfinished(world.onlooker())]}")
    if restored:  # no attempt removes objects of attempts that the restored database does not know
        repair.repair(world.onlooker(), WHY, dry_run=False)
        _move_out(world, oracle)
    oracle.check_quiet()


def _move_out(world: ModelWorld, oracle: Oracle) -> None:
    """Move files out of the lakes, as the audit says: an unknown attempt has put them, and their records are lost."""
    own = world.onlooker()
    oracle.check()
    for sink in own.sinks[: len(world.lakes)]:
        for difference in differences_of_sink(own.database, sink, [], deep=False):
            key = difference.what.removesuffix(" belongs to no manifest")
            if key == difference.what or "move it out of the lake" not in difference.next_step:
                continue  # ``check_quiet`` tells it
            if oracle.shows(sink.name, key):
                raise Violated(f"I23 nothing is left over: repair has left {key}, and all of it is published")
            sink.output.remove([key])
            world.reached["a file was moved out of the lake"] += 1


def _round(world: ModelWorld, oracle: Oracle, run_key: str) -> bool:
    """Plan and retry once; true when nothing is left to do."""
    world.surgery = True
    own = world.onlooker()
    try:
        planned = plan(own, Tick(run_key, RunKind.MANUAL, None))
    except TidemarkError as refused:
        for manifest in unfinished(own):  # a manifest that only lacks its mark may not be given up
            _retried(world, own, manifest.id)
        with suppress(NotFound):  # it was retention that a retry has noticed too, and is settled
            _decide(world, own, refused)
        return False
    Publisher(own).sweep()
    blocked = own.database.manifests.find(own.pipeline_name, [ManifestState.BLOCKED])
    for manifest in blocked if own.pipeline.expect else ():
        decisions.accept_expectation(own, manifest.id, WHY, dry_run=False)
    todo = [*unfinished(own), *(each for manifest in blocked for each in unfinished(own, manifest.id))]
    errors = [error for manifest in todo if (error := _retried(world, own, manifest.id))]
    refused = [error for error in errors if not isinstance(error, Blocked)]
    for error in refused:
        with suppress(NotFound):  # another decision of this round has settled it
            _decide(world, own, error)
    unmet = any("rows do not meet" in str(error) for error in errors)  # the next round accepts that
    if refused and not unmet and all(_waits(error) for error in refused):
        _let_blocked_go_on(world, oracle)
    return planned.reached and not refused and not unmet


def _waits(error: TidemarkError) -> bool:
    """Whether a sink that keeps the order waits for an earlier manifest."""
    return isinstance(error, WorkFailed) and "finish it first" in error.next_step


def _let_blocked_go_on(world: ModelWorld, oracle: Oracle) -> None:
    """Write into the pipeline file what the reason of blocked manifests says: later ones wait for them."""
    blocked = world.database.manifests.find(NAME, [ManifestState.BLOCKED])
    for manifest in blocked:
        if not oracle.rightly_blocked(manifest) or "write gaps: transactions" not in str(manifest.reason):
            raise Violated(f"I24 progress: manifest {manifest.id} is blocked: {manifest.reason}")
    if blocked:
        world.settings = replace(world.settings, gaps="transactions")


def _retried(world: ModelWorld, own: Context, manifest: int) -> TidemarkError | None:
    try:
        process(own, manifest, world.stage)
    except TidemarkError as error:
        return error
    return None


def _decide(world: ModelWorld, own: Context, error: TidemarkError) -> None:
    """Do what the error's next step says."""
    match error:
        case DataLost() | TopicChanged() | IllegalTransition() if "tidemark accept damage" in error.next_step:
            damage.accept_damage(own, int(str(error.context["manifest"])), WHY, dry_run=False)
        case DataLost():
            _accept_loss(world, own)
        case DatabaseBehindLake():
            adopt.adopt(own, WHY, dry_run=False)
        case NotFound():
            world.broker.create(str(error.context.get("topic", "a")), 1)
        case TopicChanged():
            for chain in own.database.chains.of_pipeline(own.pipeline_name):
                if chain.blocked and chain.blocked_end is None:
                    decisions.accept_topic(own, chain.at.topic, WHY, dry_run=False)
                    return  # it ended all chains of the topic
                if chain.blocked:
                    at = chain.at
                    decisions.accept_truncation(own, at.topic, at.partition, WHY, start=None, dry_run=False)
        case Unavailable():
            pass  # a truncation took the offsets: the next plan reports it
        case WorkFailed() if _waits(error):
            pass  # for what another decision lets go on
        case _:
            raise error


def _accept_loss(world: ModelWorld, own: Context) -> None:
    try:
        decisions.accept_loss(own, WHY, dry_run=False)
    except IllegalTransition as refused:
        _decide(world, own, refused)
