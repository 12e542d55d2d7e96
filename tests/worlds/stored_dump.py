"""A world in one file: the result of a release, stored so that every later release can restore it.

The file (``tests/dumps/VERSION.tar.gz``) has the whole manifest database as SQL (with a table of the same pipeline in
it), the lake, the pipeline file, and the records that the topic still has. Addresses, folders and the id of the topic
differ at each restore, so placeholders stand for them.
"""

import json
import os
import subprocess
import tarfile
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.arrow_stage import messages
from tests.worlds.world import Place, World
from tidemark.model.offsets import Range
from tidemark.model.offsets import TopicPartition as Partition

DUMPS = Path(__file__).parents[1] / "dumps"
FOLDER, BROKER, TOPIC_ID = "/the/folder/of/the/world", "the-broker:9092", "the-id-of-the-topic"


def store(world: World, postgres: Postgres, path: Path) -> None:
    """Write the world's state to a file."""
    own_id = topic_id(world.broker, world.topic)
    names = {str(world.folder): FOLDER, world.broker.bootstrap_servers: BROKER, own_id: TOPIC_ID}
    parts = {
        "database.sql": pg_dump(postgres, world.dsn).encode(),
        "topic.json": json.dumps({"name": world.topic, "partitions": _records(world)}, indent=1).encode(),
    }
    for folder in (world.lake, world.pipelines):
        files = [file for file in folder.rglob("*") if file.is_file()]
        parts |= {str(file.relative_to(world.folder)): file.read_bytes() for file in files}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in sorted(parts.items()):
            entry = tarfile.TarInfo(name)
            text = content if name.endswith(".parquet") else _renamed(content.decode(), names).encode()
            entry.size = len(text)
            archive.addfile(entry, BytesIO(text))


class RestoredWorld(World):
    """The world of a file, in an empty database, a new topic, and a folder that must be empty too."""

    def __init__(
        self, path: Path, postgres: Postgres, folder: Path, dsn: str, broker: Broker, spark_jars: Path
    ) -> None:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        topic = json.loads((folder / "topic.json").read_text())
        self.stored: list[dict[str, Any]] = topic["partitions"]
        pipeline = (folder / "pipelines" / "demo.yaml").read_text()
        targets = {"warehouse": dsn}
        super().__init__(
            folder, dsn, broker, spark_jars, partitions=len(self.stored), topic=topic["name"], targets=targets
        )
        (folder / "pipelines" / "demo.yaml").write_text(pipeline)
        self._fill_topic()
        names = {FOLDER: str(folder), BROKER: broker.bootstrap_servers, TOPIC_ID: topic_id(broker, self.topic)}
        for file in folder.rglob("*"):
            if file.is_file() and file.suffix != ".parquet":
                file.write_text(_renamed(file.read_text(), names))
        psql(postgres, dsn, (folder / "database.sql").read_text())

    def _fill_topic(self) -> None:
        """Each record at its offset again; what retention had taken is gone again."""
        producer = self.broker.producer()
        for number, partition in enumerate(self.stored):
            for _ in range(partition["start"]):
                producer.produce(self.topic, "gone", partition=number)
            for at, key, value in partition["records"]:
                producer.produce(self.topic, b64decode(value), key=b64decode(key), partition=number, timestamp=at)
        assert producer.flush(30) == 0
        starts = [TopicPartition(self.topic, number, part["start"]) for number, part in enumerate(self.stored)]
        self.administer("delete_records", starts)

    def write(self, count: int) -> None:
        """Send more records like the last one of the file."""
        for partition in range(self.partitions):
            _, _, value = self.stored[partition]["records"][-1]
            self.send(*[b64decode(value)] * count, partition=partition)
            self.stored[partition]["records"] += [(0, "", value)] * count

    def readable(self) -> Counter[Place]:
        """What exact readers must see in the end: all that was ever sent, without what was given up as lost."""
        lost = [(at, start or 0, end) for at, kind, start, end in self.chain() if kind == "lost"]
        given_up = {(at, offset) for at, start, end in lost for offset in range(start, end)}
        return Counter(
            (self.topic, number, offset)
            for number, partition in enumerate(self.stored)
            for offset in range(partition["start"] + len(partition["records"]))
            if (number, offset) not in given_up
        )


def restored(postgres: Postgres, dsn: str, path: Path) -> None:
    """The manifest database of a file, without its lake and topic, into an empty database."""
    with tarfile.open(path) as archive:
        file = archive.extractfile("database.sql")
        assert file is not None
        psql(postgres, dsn, file.read().decode())


def topic_id(broker: Broker, topic: str) -> str:
    admin = broker.admin()
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)


def pg_dump(postgres: Postgres, dsn: str, *options: str) -> str:
    """A database as SQL; the same text for the same content."""
    return _program(postgres, dsn, "pg_dump", "--no-owner", "--no-privileges", "--restrict-key=tidemark", *options)


def psql(postgres: Postgres, dsn: str, text: str) -> None:
    """Run a dump; an error ends it."""
    _program(postgres, dsn, "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null", given=text)


def _program(postgres: Postgres, dsn: str, name: str, *options: str, given: str = "") -> str:
    environment = {**os.environ, **postgres.client_variables, "PGDATABASE": dsn.rpartition("/")[2]}
    command = [str(postgres.programs / name), *options]
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _records(world: World) -> list[dict[str, Any]]:
    """By partition: where its log begins, and (timestamp, key, value) of each record from there on."""
    admin, stored = world.broker.admin(), []
    for number in range(world.partitions):
        at = TopicPartition(world.topic, number)
        start, end = (
            admin.list_offsets({at: spec})[at].result(30).offset
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        range_ = Range(Partition(world.topic, "", number), start, end)
        records = [
            (message.timestamp()[1], *(b64encode(part or b"").decode() for part in (message.key(), message.value())))
            for message in messages(world.broker.bootstrap_servers, range_)
        ]
        assert len(records) == end - start
        stored.append({"start": start, "records": records})
    return stored


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text
