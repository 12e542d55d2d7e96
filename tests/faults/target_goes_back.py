"""Another program takes a target, or a part of it, back: Tidemark notices, and what it prints repairs the target."""

import re

from tests.faults.model_world import NAME, WHY, ModelWorld
from tests.faults.oracle import Oracle, Violated
from tidemark.errors import TidemarkError
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import RunKind
from tidemark.operations import adopt
from tidemark.operations.audit import audit

ROUNDS = 8
PRINTED = re.compile(rf"tidemark ([a-z-]+(?: [a-z]+)?) {NAME}(?: --manifest (\d+))?")


def may_go_back(world: ModelWorld) -> bool:
    """Whether all that is published can be read again, so that everything can be put right."""
    published = [manifest for manifest in world.database.manifests.find(NAME) if manifest.publications]
    for covered in (covered for manifest in published for covered in manifest.ranges):
        current = world.broker.by_name.get(covered.at.topic)
        if current is None or current.topic_id != covered.at.topic_id:
            return False
        log = current.logs[covered.at.partition]
        entries = log.entries[covered.start : covered.end]
        if log.start > covered.start or log.end < covered.end or any(entry.rewritten for entry in entries):
            return False
    return bool(published) and not any(chain.blocked for chain in world.database.chains.of_pipeline(NAME))


def gone_back(world: ModelWorld, oracle: Oracle, pick: int) -> None:
    """Bring the targets back that can be; then a person does what is printed, until nothing more is."""
    oracle.away = True
    for other in world.others:
        if other.goes_back:
            world.reached[f"{other.name}: {other.go_back(pick)}"] += 1
    steps = _steps(world)
    for _ in range(ROUNDS):
        wrong = oracle.wrong()
        if not steps and wrong:
            raise Violated(f"I22 never silent: plan and audit say nothing, and {wrong}")
        if not steps:
            break
        world.reached["a target went back, and that was noticed"] += 1
        for verb, manifest in steps:
            _do(world, verb, manifest)
            oracle.check()
            if (now := oracle.wrong()) and "nothing twice" in now:
                raise Violated(f"{now}, after tidemark {verb}, which was printed")
        steps = _steps(world)
    else:
        raise Violated(f"I24 progress: what is printed puts no end to it: {steps}")
    oracle.away = False
    oracle.puts = -1
    oracle.check()


def _steps(world: ModelWorld) -> list[tuple[str, int]]:
    """The commands that a plan and an audit print, each once; none when both find nothing.

    A plan is tried, and not made: it would hide from the audit what is not planned yet.
    """
    own = world.onlooker()
    printed = []
    try:
        world.runs += 1
        plan(own, Tick(f"tried-{world.runs}", RunKind.MANUAL, None), dry_run=True)
    except TidemarkError as refused:
        printed.append(f"{refused.what}; {refused.next_step}")
    published = {manifest.id for manifest in world.database.manifests.find(NAME) if manifest.publications}
    deep = any(other.needs_deep for other in world.others)
    differences = audit(own, deep=deep)
    printed += [str(each) for each in differences if each.manifest_id is None or each.manifest_id in published]
    commands = [in_text[-1] for text in printed if (in_text := PRINTED.findall(text))]
    if printed and not commands:
        raise Violated(f"I24 progress: no command is printed with {printed}")
    return list(dict.fromkeys((verb, int(manifest or 0)) for verb, manifest in commands))


def _do(world: ModelWorld, verb: str, manifest: int) -> None:
    own = world.onlooker()
    world.reached[f"after a target went back: {verb}"] += 1
    try:
        match verb:
            case "db adopt":
                world.surgery = True
                for line in adopt.adopt(own, WHY, dry_run=False).lines:
                    for printed, number in PRINTED.findall(line):
                        _do(world, printed, int(number or 0))
            case "replay":
                process(own, manifest, world.stage, replay=True)
            case "retry":
                Publisher(own).sweep()
                for each in [manifest] if manifest else [each.id for each in unfinished(own)]:
                    process(own, each, world.stage)
            case _:
                raise Violated(f"I24 progress: tidemark {verb} is no way out of a target that went back")
    except TidemarkError as error:  # what it says comes again in the next round, if it is still so
        world.reached[f"after a target went back: {verb} said {type(error).__name__}"] += 1
