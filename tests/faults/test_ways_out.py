"""Issue 13: two commands never send you to each other. If you do what the messages say, you come to an end.

Each situation is met by every command that can judge it. Then the test runs the audit, and does what it says, and what
the commands that refuse say, until nothing is red.
"""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from tests.worlds.table_world import TABLE_SCHEMA, TableWorld
from tests.worlds.world import World

Words = tuple[str, ...]
WHY = ("--why", "a message said so")
OTHER_ROWS = {"format": "json", "schema": TABLE_SCHEMA.replace("name STRING, ", "")}
AUDIT = ("audit", "demo", "--deep")
JUDGES: list[Words] = [  # each is asked in a dry run, or changes nothing
    ("plan", "demo", "--dry-run"),
    AUDIT,
    ("repair", "demo", *WHY, "--dry-run"),
    ("db", "adopt", "demo", *WHY, "--dry-run"),
    ("accept", "loss", "demo", *WHY, "--dry-run"),
    ("accept", "damage", "demo", "--manifest", "1", *WHY, "--dry-run"),
]
COMMAND = re.compile(r"tidemark ([a-z-]+(?: [a-z]+)? demo[^;,.:\n]*?)(?=[;,.:\n]| then| and |$)")
MESSAGE = re.compile(r"next: (.*)")


def advised(output: str) -> list[Words]:
    """The commands that a message names after ``next:``, in their order; those that a person must complete are not."""
    commands = []
    for step in MESSAGE.findall(output):
        for command in COMMAND.findall(step.replace("--why TEXT", "--why {}")):
            words = command.split()
            if not any(word.isupper() for word in words):
                commands.append(tuple("a message said so" if word == "{}" else word for word in words))
    return commands


def die(*words: str, at: str) -> Callable[[World], None]:
    def dies(world: World) -> None:
        assert world.tidemark(*words, failpoint=f"{at}:kill9").returncode < 0

    return dies


def run(world: World) -> None:
    world.ok("run", "demo")


def other_rows(world: World) -> None:
    world.settings["decode"] = OTHER_ROWS
    world.write_pipeline()


def aborted(world: World) -> None:
    """One more offset, with a record that no reader may see."""
    world.transact("never seen", commit=False)


def block(world: World) -> None:
    """An attempt may find no gap, and finds one; then a person corrects the pipeline file."""
    world.write_pipeline(gaps="none")
    blocked = world.here("retry", "demo")
    world.write_pipeline()
    assert blocked.exit_code == 1
    assert world.manifests()[0]["state"] == "blocked", blocked.stderr


def without_object(world: World) -> None:
    World.damage(world, world.manifests()[0])


def without_record(world: World) -> None:
    for record in world.lake.glob("_manifests/demo/*.json"):
        record.unlink()


def with_half_a_record(world: World) -> None:
    for record in world.lake.glob("_manifests/demo/*.json"):
        record.write_text(record.read_text()[:40])


def without_newest_object(world: World) -> None:
    newest = max(world.lake.glob("_manifests/demo/*.json"))
    (world.lake / json.loads(newest.read_text())["objects"][0]["path"]).unlink()


def without_marker(world: World) -> None:
    assert isinstance(world, TableWorld)
    world.query("DELETE FROM tidemark_target.marker RETURNING manifest")


def without_rows(world: World) -> None:
    assert isinstance(world, TableWorld)
    world.execute("DELETE FROM public.latest WHERE k > 4")


def without_marker_and_rows(world: World) -> None:
    without_marker(world)
    without_rows(world)


def with_another_object(world: World) -> None:
    """Of the same size, so that only who reads it sees that."""
    [*_, path] = sorted(world.lake.glob("raw/**/*.parquet"))
    path.write_bytes(b"x" * path.stat().st_size)


def change(world: World, *statements: str) -> None:
    with psycopg.connect(world.dsn, autocommit=True) as sql:
        sql.execute("SET session_replication_role = replica")  # no triggers, as a restore has none
        for statement in (*statements, "SELECT tidemark.count_done()"):
            sql.execute(statement)  # type: ignore[arg-type]


def failed_over(world: World) -> None:
    """To a replica that has the start of the newest attempt, and neither its receipt nor its mark."""
    newest = "attempt = (SELECT max(attempt) FROM tidemark.attempt)"
    change(
        world,
        f"DELETE FROM tidemark.publication WHERE {newest}",
        f"UPDATE tidemark.attempt SET receipt = NULL, state = 'running', ended_at = NULL WHERE {newest}",
        "UPDATE tidemark.manifest SET state = 'running', done_at = NULL "
        "WHERE NOT EXISTS (SELECT FROM tidemark.publication)",
    )


def add_lake(world: World) -> None:
    world.settings["sinks"] = [*world.settings["sinks"], world.lake_entry()]
    world.write_pipeline()


REPLAY = ("replay", "demo", "--manifest", "1")
DIED_FIRST = {
    f"killed at {at}": (die("run", "demo", at=at),)
    for at in ("attempt.started", "publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark",
               "publish.marked")
}  # fmt: skip
DIED_IN_A_REPLAY = {
    f"killed in a replay at {at}": (run, other_rows, die(*REPLAY, at=at))
    for at in ("publish.mid", "publish.before_record", "publish.before_mark", "publish.marked")
}
Situations = dict[str, tuple[Callable[[World], None], ...]]
OF_A_LAKE: Situations = {
    **DIED_FIRST,
    **DIED_IN_A_REPLAY,
    "killed, then blocked": (aborted, die("run", "demo", at="publish.mid"), block),
    "an object is gone": (run, without_object),
    "an object is another one": (run, with_another_object),
    "the record is gone": (run, without_record),
    "the record is cut": (run, with_half_a_record),
    "object and record are gone": (run, without_object, without_record),
    "a dead replay lacks an object": (
        run, other_rows, die(*REPLAY, at="publish.before_mark"), without_newest_object
    ),
    "a dead replay's record is cut": (
        run, other_rows, die(*REPLAY, at="publish.before_mark"), with_half_a_record
    ),
    "failed over": (run, failed_over),
    "failed over after a replay": (run, other_rows, lambda world: world.ok(*REPLAY) and None, failed_over),
    "failed over, and an object is gone": (run, without_object, failed_over),
}  # fmt: skip
OF_A_TABLE: Situations = {
    **DIED_FIRST,
    **DIED_IN_A_REPLAY,
    "the marker is gone": (run, without_marker),
    "rows are gone": (run, without_rows),
    "marker and rows are gone": (run, without_marker_and_rows),
    "failed over": (run, failed_over),
    "failed over, and the marker is gone": (run, without_marker, failed_over),
    "a lake was added": (run, add_lake),
    "a lake was added, and the marker is gone": (run, add_lake, without_marker),
}
OF_BOTH: Situations = {
    **DIED_FIRST,
    **DIED_IN_A_REPLAY,
    "one sink published, then blocked": (aborted, die("run", "demo", at="publish.marked"), block),
    "the marker is gone": (run, without_marker),
    "rows are gone": (run, without_rows),
    "object and rows are gone": (run, without_object, without_rows),
    "object and marker are gone": (run, without_object, without_marker),
    "failed over": (run, failed_over),
    "failed over, and an object is gone": (run, without_object, failed_over),
    "failed over, and the marker is gone": (run, without_marker, failed_over),
}
QUICK = {
    ("lake", "killed at publish.mid"), ("lake", "the record is cut"), ("lake", "an object is another one"),
    ("table", "rows are gone"), ("both", "object and marker are gone"),
}  # fmt: skip
CASES = [
    pytest.param(
        kind,
        steps,
        lost,
        marks=[] if (kind, name) in QUICK else pytest.mark.exhaustive,
        id=f"{kind}-{name}{'-and lost' if lost else ''}",
    )
    for kind, situations in (("lake", OF_A_LAKE), ("table", OF_A_TABLE), ("both", OF_BOTH))
    for (name, steps), lost in itertools.product(situations.items(), (False, True))
]


def answer(world: World, words: Words) -> tuple[int, str]:
    done = world.here(*words)
    assert "Traceback" not in done.stderr
    assert done.exit_code in (0, 1, 2), (words, done.stderr)
    return done.exit_code, done.stdout + done.stderr


def command(words: Words) -> Words:
    """The words before the name of the pipeline."""
    return words[: words.index("demo")]


def assert_nobody_is_sent_back(world: World) -> None:
    """No two commands that refuse, or find something red, name each other."""
    sends: dict[Words, set[Words]] = {}
    for words in JUDGES:
        status, output = answer(world, words)
        sends[command(words)] = {command(other) for other in advised(output)} if status else set()
    for sender, others in sends.items():
        for other in others & set(sends):
            assert sender not in sends[other] or sender == other, (sender, other, sends)


def standing(world: World) -> list[tuple[str, list[tuple[str, bool]]]]:
    """How far the manifests are; one attempt more is no progress."""
    return [
        (view["state"], [(shown["sink"], shown["behind"]) for shown in view["publications"]])
        for view in world.manifests()
    ]


def follow(world: World) -> list[Words]:
    """Do what the audit says, and what is said by what it names, until nothing is red; what was done."""
    done: list[Words] = []
    told: set[tuple[str, ...]] = set()
    todo: list[Words] = [AUDIT]
    while todo:
        words = todo.pop(0)
        status, output = answer(world, words)
        done.append(words)
        if status == 0:
            continue
        met = (*words, output, str(world.chain()), str(standing(world)))
        assert met not in told, f"a circle: {done}\n{output}"
        told.add(met)
        commands = advised(output)
        assert commands, f"no way out: {done}\n{output}"
        todo = [*dict.fromkeys(commands), AUDIT]
    return done


@pytest.mark.parametrize(("kind", "steps", "lost"), CASES)
def test_whoever_does_what_the_messages_say_comes_to_an_end(
    make_table_world: Callable[..., TableWorld],
    make_world: Callable[..., World],
    kind: str,
    steps: tuple[Callable[[World], None], ...],
    lost: bool,
) -> None:
    settings: dict[str, Any] = {"kafka": {"slice": {"max_records": 1000}, "gaps": "transactions"}}
    if kind == "lake":
        decode = {"format": "json", "schema": TABLE_SCHEMA}
        world = make_world(settings={**settings, "decode": decode})
        world.settings["sinks"] = [world.lake_entry()]
    else:
        world = make_table_world(has_lake=kind == "both", settings=settings)
    world.produce(20)
    for step in steps:
        step(world)
    if lost:
        world.administer("delete_records", [TopicPartition(world.topic, at, -1) for at in range(2)])
    assert_nobody_is_sent_back(world)
    follow(world)
    states = {manifest["state"] for manifest in world.manifests()}
    if states != {"done"}:  # nothing of it was ever put: the audit does not miss it, the status does
        status, output = answer(world, ("status", "demo"))
        assert (status, len(advised(output)) > 0) == (1, True), output
        for words in advised(output):
            status, output = answer(world, words)
            while status:
                [*commands] = advised(output)
                assert commands, output
                status, output = answer(world, commands[0])
            world.here("retry", "demo")
    assert {manifest["state"] for manifest in world.manifests()} == {"done"}
    assert max(world.exact().values(), default=1) == 1
    world.produce(10)
    world.ok("run", "demo")
    assert world.ok(*AUDIT) == ""
