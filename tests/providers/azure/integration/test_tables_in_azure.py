"""Delta and Iceberg tables, and the staging of a topic, in Azurite: our client meets those of the libraries."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import PY_IO_IMPL

from sandbox.services.azurite import Container
from tests.worlds.azure_world import Blobs
from tests.worlds.delta_world import DeltaWorld, KeyedDeltaWorld
from tests.worlds.iceberg_world import IcebergWorld
from tests.worlds.topic_world import TopicWorld
from tests.worlds.world import Place
from tidemark.providers.iceberg.catalog import FILE_IO
from tidemark.providers.iceberg.file_io import STORE

KEYS = "store"
FEWER_COLUMNS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
Make = Callable[..., Any]


@pytest.fixture
def own(azure: Container) -> Container:
    """The place of one test."""
    return azure.below(uuid4().hex)


def staged(container: Container) -> list[str]:
    return [key for key in Blobs(container).etags() if key.endswith(".arrow")]


def connection_by_string(container: Container) -> str:
    return json.dumps({"conn_type": "wasb", "extra": {"connection_string": container.connection_string()}})


def test_a_delta_table_has_each_record_once_after_a_run_and_a_replay(make_delta_world: Make, own: Container) -> None:
    world: DeltaWorld = make_delta_world(bucket=own)
    world.produce(40, bad_every=13)
    assert "(tried)" in world.ok("doctor", "demo")
    world.ok("run", "demo")
    world.assert_complete()
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()
    world.damage(world.manifests()[0])
    assert world.here("audit", "demo").exit_code == 1


@pytest.mark.parametrize("keys", [Container.connection_by_sas, connection_by_string], ids=["SAS", "connection string"])
def test_a_delta_table_takes_each_kind_of_keys(
    make_keyed_delta_world: Make, own: Container, keys: Callable[[Container], str]
) -> None:
    world: KeyedDeltaWorld = make_keyed_delta_world(bucket=own)
    world.targets = {name: keys(own) for name in world.targets}
    for number in range(2):
        world.produce(40)
        world.ok("run", "demo", "--run-key", str(number))
    world.assert_complete()


@dataclass
class InAzure(IcebergWorld):
    """A world whose table is in ``place``. The test reads metadata by our client, and rows by Azure's."""

    place: Container = field(kw_only=True)

    def __post_init__(self) -> None:
        self.iceberg = {"warehouse": self.place.root, "store_connection": KEYS}
        super().__post_init__()
        self.targets[KEYS] = self.place.connection()

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        store = json.dumps({"settings": {"connection": KEYS}, "connection": json.loads(self.place.connection())})
        uri = self.targets["warehouse"].replace("postgresql://", "postgresql+psycopg://")
        catalog = SqlCatalog("tidemark", uri=uri, **{PY_IO_IMPL: FILE_IO, STORE: store})
        try:
            yield catalog
        finally:
            catalog.engine.dispose()

    def rows(self) -> Counter[Place]:
        table = self.table()
        assert table is not None
        blobs, places = Blobs(self.place), Counter[Place]()
        for task in table.scan().plan_files():
            assert not task.delete_files
            file = pq.read_table(BytesIO(blobs.content(task.file.file_path.removeprefix(f"{self.place.root}/"))))
            places.update((row["_topic"], row["_topic_partition"], row["_offset"]) for row in file.to_pylist())
        return places


def test_an_iceberg_table_has_each_record_once_after_a_run_and_a_replay(
    make_iceberg_world: Make, own: Container
) -> None:
    world = make_iceberg_world(kind=InAzure, place=own)
    world.produce(40)
    assert "(tried)" in world.ok("doctor", "demo")
    for number in range(2):
        world.ok("run", "demo", "--run-key", str(number))
        assert world.rows() == world.everything()
        world.produce(20)
    world.ok("run", "demo")
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    assert world.shown()[1] == 2
    assert world.rows() == world.everything()
    assert world.ok("audit", "demo", "--deep") == ""
    keys = Blobs(own).keys()
    assert any(key.endswith(".metadata.json") for key in keys)
    assert not [key for key in keys if "/_staging/" in key]


def test_a_topic_is_staged_in_a_container(make_topic_world: Make, own: Container) -> None:
    world: TopicWorld = make_topic_world()
    [sink] = world.settings["sinks"]
    sink["topic"] |= {"staging": own.root, "staging_connection": KEYS}
    world.write_pipeline()
    world.targets[KEYS] = own.connection()
    world.produce(40, bad_every=13)
    paused = world.tidemark("run", "demo", failpoint="publish.before_record:kill9")
    assert paused.returncode < 0
    assert staged(own)
    world.finish()
    assert not staged(own)
