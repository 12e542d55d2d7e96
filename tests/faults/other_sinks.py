"""The other sinks of a schedule, of any kind except lakes: real targets, and what their readers see of each record.

A record's serial number is the column ``n``: its own key in a table, its own group in totals.
"""

import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import uuid4

import psycopg

from sandbox.services.broker import Broker
from sandbox.services.dynamodb import DynamoDB
from sandbox.services.postgres import Postgres
from tests.worlds.dynamo_world import items_of
from tests.worlds.new_topics import new_topic
from tests.worlds.topic_world import committed, place_of
from tests.worlds.used_topics import delete_later
from tidemark.connections.lookup import variable_of

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

COMMIT, EXPIRE, NO_TAGS = 1, 2, 4  # what else another program does to a table that it rolls back
STRANGE = -1  # in the place of a serial number, of a message that is none of its sink
AGGREGATE = {"group_by": ["n"], "values": {"records": "count"}}


class OtherSink(ABC):
    """A target made for one schedule. ``name`` is the sink's name in the pipeline file, and ``kind`` its kind."""

    kind: str
    name: str
    takes_other_rows = True  # whether a replay may put other rows in the place of what is published
    goes_back = False  # whether another program can bring it, or a part of it, to an earlier state
    needs_deep = False  # whether only a deep audit can tell that a part of it went back

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", cls.kind)

    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """The settings of the sink."""

    @abstractmethod
    def seen(self) -> Counter[int]:
        """How often readers see each record that could be decoded, by its serial number."""

    def half(self) -> set[int]:
        """The manifests that an attempt is in the middle of, and ``seen`` leaves out."""
        return set()

    def streams(self) -> list[list[int]]:
        """The serial numbers of each source partition as readers get them one after the other, when they were ``seen``
        last; none without order."""
        return []

    def gone(self) -> list[str]:
        """The files that a reader of anything that the target keeps would miss."""
        return []

    def remember(self) -> None:  # noqa: B027 - some keep what they were themselves
        """Take the copy that ``go_back`` brings back."""

    def go_back(self, pick: int) -> str:
        """What another program does to the target, which does not go through Tidemark; what it was."""
        raise AssertionError(f"{self.name} does not go back, {pick}")


class OtherTable(OtherSink):
    """A table with one row per key."""

    kind = "postgres"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def entry(self) -> dict[str, Any]:
        return {"connection": "warehouse", "table": "latest", "key": ["n"], "order_by": "n", "auto_create": True}

    def seen(self) -> Counter[int]:
        return self._counted("latest", "SELECT n, 1 FROM public.latest WHERE NOT _is_deleted")

    def _counted(self, table: str, statement: str) -> Counter[int]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            relation = connection.execute("SELECT to_regclass(%s)", [f"public.{table}"]).fetchone()
            if relation is None or relation[0] is None:
                return Counter()
            return Counter(dict(connection.execute(statement).fetchall()))  # type: ignore[arg-type]


class OtherTotals(OtherTable):
    """Totals of one record each."""

    kind = "totals"
    goes_back = needs_deep = True
    tables = ("public.totals_contributions", "public.totals", "tidemark_target.marker")

    def entry(self) -> dict[str, Any]:
        return {"connection": "warehouse", "table": "totals", "auto_create": True, "aggregate": AGGREGATE}

    def seen(self) -> Counter[int]:
        return self._counted("totals", "SELECT n, records FROM public.totals")

    def remember(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS copied CASCADE; CREATE SCHEMA copied")
            for table in self.tables:
                connection.execute(f"CREATE TABLE copied.{table.rpartition('.')[2]} AS TABLE {table}")

    def go_back(self, pick: int) -> str:
        """One of the tables is restored from a copy that is older than that of the others."""
        table = self.tables[pick % len(self.tables)]
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM copied.{table.rpartition('.')[2]}")
        return f"{table} is restored"


class OtherTopic(OtherSink):
    """Messages, which are never taken back."""

    kind = "topic"
    takes_other_rows = False

    def __init__(self, servers: str, topic: str) -> None:
        self.servers = servers
        self.topic = topic
        self.read: dict[tuple[int | None, str, int], list[int]] = {}

    def entry(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.servers, "topic": self.topic, "key": ["n"]}

    def seen(self) -> Counter[int]:
        """By the partition that a message is in, and the one that its record came from."""
        self.read = {}
        for message in committed(self.servers, self.topic):
            topic, partition, _ = place_of(message)
            self.read.setdefault((message.partition(), topic, partition), []).append(
                self.serial(message.value() or b"")
            )
        return Counter(serial for stream in self.streams() for serial in stream)

    def streams(self) -> list[list[int]]:
        return list(self.read.values())

    def serial(self, value: bytes) -> int:
        """The record that a message of this sink is of."""
        return int(json.loads(value)["n"]) if value.startswith(b"{") else STRANGE


class NamesTopic(OtherTopic):
    """Messages with nothing but the name of a record: another sink must not send its own messages in their place."""

    name = "names"

    def entry(self) -> dict[str, Any]:
        return {**super().entry(), "name": self.name, "format": "raw", "value": "name"}

    def serial(self, value: bytes) -> int:
        return int(value[1:]) if value.startswith(b"r") else STRANGE


class OtherIceberg(OtherSink):
    """An Iceberg table, with its catalog in a database."""

    kind = "iceberg"
    goes_back = True

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder

    def entry(self) -> dict[str, Any]:
        return {"connection": "warehouse", "table": "sales.latest", "warehouse": str(self.folder), "auto_create": True}

    @contextmanager
    def table(self) -> Iterator["Table | None"]:
        from tests.worlds.iceberg_world import TABLE, catalog_at  # its library takes a second

        with catalog_at(self.dsn) as catalog:
            yield catalog.load_table(TABLE) if catalog.table_exists(TABLE) else None

    def seen(self) -> Counter[int]:
        with self.table() as table:
            return (
                Counter() if table is None else Counter(table.scan(selected_fields=("n",)).to_arrow()["n"].to_pylist())
            )

    def gone(self) -> list[str]:
        """A reader may go to any snapshot that is kept."""
        with self.table() as table:
            if table is None:
                return []
            kept = {file for snapshot in table.snapshots() for file in snapshot.manifests(table.io)}
            entries = [entry for file in kept for entry in file.fetch_manifest_entry(table.io, discard_deleted=True)]
            named = {entry.data_file.file_path.removeprefix("file://") for entry in entries}
            return sorted(path for path in named if not Path(path).exists())

    def expire_oldest(self) -> None:
        """Another program expires the oldest snapshot; the files stay, since later ones name them."""
        with self.table() as table:
            assert table is not None
            table.maintenance.expire_snapshots().by_id(self._oldest_first(table)[0].snapshot_id).commit()

    @staticmethod
    def _oldest_first(table: "Table") -> "list[Snapshot]":
        return sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)

    def newest(self) -> int:
        """The position of the newest snapshot among those that are kept."""
        with self.table() as table:
            assert table is not None
            return len(table.metadata.snapshots) - 1

    def go_back(self, pick: int) -> str:
        """Roll back to a snapshot that is kept; after that there may be a commit without rows, and an expiry."""
        with self.table() as table:
            if table is None:
                return "nothing, there is no table"
            kept = self._oldest_first(table)
            to = kept[pick // 8 % len(kept)]
            done = [f"rolled back to {len(kept) - kept.index(to)} snapshots ago"]
            table.manage_snapshots().set_current_snapshot(snapshot_id=to.snapshot_id).commit()
            if pick & COMMIT:
                table.append(table.schema().as_arrow().empty_table())
                done.append("another commit")
            if pick & NO_TAGS:
                for tag in table.refresh().metadata.refs.keys() - {"main"}:
                    table.manage_snapshots().remove_tag(tag).commit()
                done.append("tags removed")
            if pick & EXPIRE:
                needed = {ref.snapshot_id for ref in table.refresh().metadata.refs.values()}
                old = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in needed]
                table.maintenance.expire_snapshots().by_ids(old).commit()
                done.append("all others expired")
            return ", ".join(done)


class OtherDelta(OtherSink):
    """A Delta table in a folder."""

    kind = "delta"
    goes_back = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entry(self) -> dict[str, Any]:
        return {"location": str(self.folder), "auto_create": True}

    def table(self) -> "DeltaTable | None":
        from deltalake import DeltaTable  # its library takes a moment

        return DeltaTable(self.folder) if DeltaTable.is_deltatable(self.folder) else None

    def seen(self) -> Counter[int]:
        table = self.table()
        return Counter() if table is None else Counter(table.to_pyarrow_table(columns=["n"])["n"].to_pylist())

    def gone(self) -> list[str]:
        """A reader may go to any version, as nobody vacuums the table."""
        from deltalake import DeltaTable

        newest = self.table()
        if newest is None:
            return []
        versions = (DeltaTable(self.folder, version=version) for version in range(newest.version() + 1))
        named = {path for table in versions for path in table.file_uris()}
        return sorted(path for path in named if not Path(path).exists())

    def go_back(self, pick: int) -> str:
        """RESTORE an older version; after that there may be a commit without rows, and a checkpoint."""
        table = self.table()
        if table is None:
            return "nothing, there is no table"
        to = pick // 8 % (table.version() + 1)
        done = [f"restored to version {to} of {table.version()}"]
        if to < table.version():
            table.restore(to)
        if pick & COMMIT:
            table.alter.set_table_properties({"delta.logRetentionDuration": f"interval {30 + pick} days"})
            done.append("another commit")
        if pick & EXPIRE:
            table.create_checkpoint()
            done.append("a checkpoint")
        return ", ".join(done)


class OtherItems(OtherTotals):
    """The same totals, as items of a copy."""

    copy_of = "dynamodb"

    def __init__(self, server: DynamoDB, *others: Any) -> None:
        super().__init__(*others)
        self.client = server.client()
        self.items: list[dict[str, Any]] = []
        self.items_table = f"copy{uuid4().hex[:12]}"

    def entry(self) -> dict[str, Any]:
        return {
            **super().entry(),
            "served_in": {"dynamodb": {"connection": "dynamodb", "table": self.items_table, "auto_create": True}},
        }

    def remember(self) -> None:
        super().remember()
        self.items = self.client.scan(TableName=self.items_table)["Items"]

    def go_back(self, pick: int) -> str:
        """As other totals; or the copy is restored from a backup."""
        if pick % (len(self.tables) + 1) < len(self.tables):
            return super().go_back(pick % (len(self.tables) + 1))
        restore(self.client, self.items_table, self.items)
        return f"{self.items_table} is restored"

    def seen(self) -> Counter[int]:
        items = [item for item in items_of(self.client, self.items_table) if item.get("_rows")]
        return sum((Counter({item["n"]: item["records"]}) for item in items), Counter())


def restore(client: Any, table: str, items: list[dict[str, Any]]) -> None:
    """Give a table of DynamoDB the items that it had before, and no others."""
    described = client.describe_table(TableName=table)["Table"]
    client.delete_table(TableName=table)
    client.create_table(
        TableName=table, BillingMode="PAY_PER_REQUEST",
        **{name: described[name] for name in ("AttributeDefinitions", "KeySchema")},
    )  # fmt: skip
    for item in items:
        client.put_item(TableName=table, Item=item)


KINDS = ("postgres", "totals", "topic", "iceberg", "delta", "dynamodb")
PAIRS = ("topics of one name", "topic and items of one name")


class OtherSinks:
    """Makes the other sinks of schedules on running services; ``second_broker`` starts another cluster."""

    def __init__(
        self, postgres: Postgres, broker: Broker, dynamodb: DynamoDB, second_broker: Callable[[], Broker]
    ) -> None:
        self.postgres = postgres
        self.broker = broker
        self.dynamodb = dynamodb
        self.second_broker = second_broker

    @contextmanager
    def targets(self, kind: str, folder: Path) -> Iterator[list[OtherSink]]:
        """New targets, and the connections that their settings name; they are removed in the end."""
        with ExitStack() as stack:
            match kind:
                case "topic":
                    yield [OtherTopic(self.broker.bootstrap_servers, self._topic(stack))]
                case "topics of one name":
                    topic, second = self._topic(stack), self.second_broker()
                    second.create_topic(topic, 1, {"retention.ms": "-1"})
                    yield [
                        OtherTopic(self.broker.bootstrap_servers, topic),
                        NamesTopic(second.bootstrap_servers, topic),
                    ]
                case "dynamodb":
                    dsn = stack.enter_context(self.postgres.temporary_database("warehouse"))
                    self._connect(stack, "warehouse", dsn)
                    self._connect(stack, "dynamodb", self.dynamodb.connection())
                    yield [OtherItems(self.dynamodb, dsn)]
                case "delta":
                    yield [OtherDelta(folder / "delta")]
                case _:
                    dsn = stack.enter_context(self.postgres.temporary_database("warehouse"))
                    self._connect(stack, "warehouse", dsn)
                    table = OtherTotals if kind == "totals" else OtherTable
                    yield [OtherIceberg(dsn, folder / "warehouse") if kind == "iceberg" else table(dsn)]

    def _topic(self, stack: ExitStack) -> str:
        """A topic of one partition, so that its messages have one order."""
        topic = new_topic(self.broker, 1)
        stack.callback(delete_later, self.broker, topic, f"{topic}-markers", f"{topic}-dead-letters")
        return topic

    @staticmethod
    def _connect(stack: ExitStack, name: str, connection: str) -> None:
        stack.enter_context(mock.patch.dict(os.environ, {variable_of(name): connection}))
