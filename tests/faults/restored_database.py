"""Restores the manifest database from an older copy: verbs are refused until the lake's records are adopted."""

from tests.faults.actors import Actor, Fault
from tests.faults.model_world import NAME, ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark.errors import DatabaseBehindLake, LakeConflict, TidemarkError
from tidemark.paths import RecordName


def restored(world: ModelWorld, oracle: Oracle, killed_at: int | None) -> bool:
    """Restore the copy and adopt the lake's records; the first ``adopt`` is killed at operation ``killed_at``.

    False when ``adopt`` is refused, because of a person's decision after the copy: no record of the lake has it.
    """
    world.restore()
    oracle.forget()
    beyond, overtaken = _behind(world)
    oracle.behind = bool(beyond or overtaken)
    world.reached["restored, and the lake knew more"] += oracle.behind
    world.reached["restored, and the lake knew no more"] += not oracle.behind
    if beyond:
        _must_refuse(world, world.plan())
    for manifest in overtaken:
        _must_refuse(world, world.process(manifest, replay=True))
    oracle.check()
    if oracle.behind and killed_at is not None:
        world.hit(world.adopt(), Fault.KILL, killed_at)
        oracle.check()
    if oracle.behind:
        adopter = world.adopt()
        world.finish(adopter)
        if adopter.error is not None:
            if not isinstance(adopter.error, LakeConflict):
                raise Violated(f"adopt said {adopter.error!r}")
            world.reached["adopt was refused"] += 1
            return False
        oracle.behind = False
        if _behind(world) != ([], []):
            raise Violated(f"adopt left out {_behind(world)}")
        oracle.check()
    return True


def _behind(world: ModelWorld) -> tuple[list[int], list[int]]:
    """Manifests that have a record in the lake and are not in the database, and those whose newest attempt is not."""
    known = {manifest.id: manifest.attempt for manifest in world.database.manifests.find(NAME)}
    keys = [key for lake in world.lakes.values() for key in lake.files(f"_manifests/{NAME}/")]
    names = [name for key in keys if (name := RecordName.parse(key))]
    for sink in world.onlooker().sinks[len(world.lakes) :]:
        names += sink.ledger.records()
    beyond = sorted({name.manifest_id for name in names if name.manifest_id not in known})
    return beyond, sorted(
        {name.manifest_id for name in names if name.attempt > known.get(name.manifest_id, name.attempt)}
    )


def _must_refuse(world: ModelWorld, actor: Actor) -> None:
    world.finish(actor)
    error: TidemarkError | None = actor.error
    if not isinstance(error, DatabaseBehindLake):
        raise Violated(f"I22 never silent: the lake knows more than the database, and {actor.name} said {error!r}")
