"""A real Debezium follows a table that is changed at random, while the connector, the database and attempts are killed.

The copies in each kind of table must have the rows of the source, value by value.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from sandbox.services.broker import Broker
from sandbox.services.registry import SchemaRegistry
from tests.worlds.copied_table import READERS, CopiedTable, registry_of, sinks
from tests.worlds.source_of_changes import FORMS, SourceOfChanges
from tests.worlds.source_types import DEFINITIONS
from tests.worlds.table_world import TableWorld
from tidemark.failpoints import FAILPOINTS

pytestmark = pytest.mark.exhaustive
POINTS = tuple(point for point in FAILPOINTS if not point.startswith("plan."))
ROUNDS = 4


@pytest.fixture
def source(tmp_path: Path, broker: Broker, registry: SchemaRegistry) -> Iterator[SourceOfChanges]:
    tables = f"{DEFINITIONS}; {CopiedTable.DEFINITION}"
    with SourceOfChanges.opened(tmp_path / "source", broker, registry, tables) as opened:
        yield opened


def test_copies_in_each_form_and_target_equal_the_source(
    source: SourceOfChanges, make_table_world: Callable[..., TableWorld], tmp_path: Path
) -> None:
    random = Random(0)
    table = CopiedTable(source, random)
    table.change(150)
    connect = source.start_connect(**{"topic.creation.default.partitions": "3"})
    source.settle()
    folders = {form: tmp_path / form for form in FORMS}
    worlds = {
        form: make_table_world(
            name=form,
            settings={
                "decode": table.decode(form),
                "kafka": {"topics": [source.topic(form, "copied")], "slice": {"max_records": 100}},
                "sinks": sinks(folder, form, *READERS),
                "event_time": {},
            },
        )
        for form, folder in folders.items()
    }
    kills = 0
    for number in range(ROUNDS):
        table.change(100)
        match number % 3:
            case 0:
                connect.kill()
                table.change(50)
                connect.restart()
            case 1:
                source.database.kill()
                source.database.restart()
                connect.restart()
        for form, world in worlds.items():
            world.targets |= registry_of(source)
            point = f"{random.choice(POINTS)}:kill9@{random.choice([1, 1, 2])}"
            killed = world.tidemark("run", form, failpoint=point if random.random() < 0.6 else "")
            assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
            kills += killed.returncode != 0
            world.ok("retry", form)
            done = [str(manifest["id"]) for manifest in world.manifests() if manifest["state"] == "done"]
            for manifest in random.sample(done, min(len(done), 1)):
                world.ok("replay", form, "--manifest", manifest)
    source.settle()
    assert kills > 1
    right = table.right()
    assert len(right) > 20
    for form, world in worlds.items():
        world.ok("retry", form)
        world.ok("run", form)
        for kind, read in READERS.items():
            copied = table.of_copy(read(world, folders[form], form))
            assert copied == right, f"{form} in {kind}"
        assert world.json("objects", form, "--dead-letters") == []
        assert world.ok("audit", form, "--deep") == ""
