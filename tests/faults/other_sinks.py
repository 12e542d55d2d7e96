"""The second sink of a schedule, of any kind that is no lake: a real target, and what its readers see of each record.

A record's serial number is the column ``n``: a key of its own in a table, a group of its own in totals.
"""

import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import psycopg

from sandbox.services.broker import Broker
from sandbox.services.dynamodb import DynamoDB
from sandbox.services.postgres import Postgres
from tests.worlds.dynamo_world import Items, is_whole, items_of
from tests.worlds.new_topics import new_topic
from tests.worlds.topic_world import committed, place_of
from tests.worlds.used_topics import delete_later
from tidemark.connections import variable_of

AGGREGATE = {"group_by": ["n"], "values": {"records": "count"}}


class OtherSink(ABC):
    """A target made for one schedule. ``name`` is the sink's name in the pipeline file, and ``kind`` its kind."""

    kind: str
    takes_other_rows = True  # whether a replay may put other rows in the place of what is published

    @property
    def name(self) -> str:
        return self.kind

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
        """The serial numbers of each source partition as readers get them one after the other; none without order."""
        return []


class OtherTable(OtherSink):
    """Rows by key."""

    kind = "postgres"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def entry(self) -> dict[str, Any]:
        return {"connection": "warehouse", "table": "latest", "key": ["n"], "order_by": "n", "auto_create": True}

    def seen(self) -> Counter[int]:
        return self._counted("latest", "SELECT n, 1 FROM public.latest WHERE NOT _deleted")

    def _counted(self, table: str, statement: str) -> Counter[int]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            relation = connection.execute("SELECT to_regclass(%s)", [f"public.{table}"]).fetchone()
            if relation is None or relation[0] is None:
                return Counter()
            return Counter(dict(connection.execute(statement).fetchall()))  # type: ignore[arg-type]


class OtherTotals(OtherTable):
    """Totals of one record each."""

    kind = "totals"

    def entry(self) -> dict[str, Any]:
        return {"connection": "warehouse", "table": "totals", "auto_create": True, "aggregate": AGGREGATE}

    def seen(self) -> Counter[int]:
        return self._counted("totals", "SELECT n, records FROM public.totals")


class OtherTopic(OtherSink):
    """Messages, which are never taken back."""

    kind = "topic"
    takes_other_rows = False

    def __init__(self, servers: str, topic: str) -> None:
        self.servers = servers
        self.topic = topic

    def entry(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.servers, "topic": self.topic, "key": ["n"]}

    def seen(self) -> Counter[int]:
        return Counter(serial for stream in self.streams() for serial in stream)

    def streams(self) -> list[list[int]]:
        """By the partition that a message is in, and the one that its record came from."""
        streams: dict[tuple[int | None, str, int], list[int]] = {}
        for message in committed(self.servers, self.topic):
            topic, partition, _ = place_of(message)
            serial = json.loads(message.value() or b"{}")["n"]
            streams.setdefault((message.partition(), topic, partition), []).append(serial)
        return list(streams.values())


class OtherIceberg(OtherSink):
    """A table of files, with its catalog in a database."""

    kind = "iceberg"

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder

    def entry(self) -> dict[str, Any]:
        return {"connection": "warehouse", "table": "sales.latest", "warehouse": str(self.folder), "auto_create": True}

    def seen(self) -> Counter[int]:
        from tests.worlds.iceberg_world import TABLE, catalog_at  # its library takes a second

        with catalog_at(self.dsn) as catalog:
            if not catalog.table_exists(TABLE):
                return Counter()
            rows = catalog.load_table(TABLE).scan(selected_fields=("n",)).to_arrow()
            return Counter(rows["n"].to_pylist())


class OtherItems(OtherSink):
    """Totals of one record each, as items; seen are those of manifests whose marker says that they are whole."""

    kind = "dynamodb"

    def __init__(self, server: DynamoDB, table: str) -> None:
        self.client = server.client()
        self.table = table

    def entry(self) -> dict[str, Any]:
        return {"connection": "dynamodb", "table": self.table, "auto_create": True, "aggregate": AGGREGATE}

    def seen(self) -> Counter[int]:
        half = self.half()
        kept = [item for item in self._contributions() if "_attempt" in item and item["_manifest_id"] not in half]
        return sum((Counter({item["n"]: item["_rows"]}) for item in kept), Counter())

    def half(self) -> set[int]:
        markers = [item for item in self._contributions() if item["_key"] == "marker"]
        return {item["_manifest_id"] for item in markers if not is_whole(item)}

    def _contributions(self) -> Items:
        return items_of(self.client, f"{self.table}_contributions")


KINDS = ("postgres", "totals", "topic", "iceberg", "dynamodb")


class OtherSinks:
    """Makes the second sinks of schedules, on services that run."""

    def __init__(self, postgres: Postgres, broker: Broker, dynamodb: DynamoDB) -> None:
        self.postgres = postgres
        self.broker = broker
        self.dynamodb = dynamodb

    @contextmanager
    def target(self, kind: str, folder: Path) -> Iterator[OtherSink]:
        """A new target, and the connections that its settings name; it is removed in the end."""
        with ExitStack() as stack:
            match kind:
                case "topic":
                    topic = new_topic(self.broker, 2)
                    stack.callback(delete_later, self.broker, topic, f"{topic}-markers", f"{topic}-dead-letters")
                    yield OtherTopic(self.broker.bootstrap_servers, topic)
                case "dynamodb":
                    self._connect(stack, "dynamodb", self.dynamodb.connection())
                    yield OtherItems(self.dynamodb, f"schedule{uuid4().hex[:12]}")
                case _:
                    dsn = stack.enter_context(self.postgres.temporary_database("warehouse"))
                    self._connect(stack, "warehouse", dsn)
                    table = OtherTotals if kind == "totals" else OtherTable
                    yield OtherIceberg(dsn, folder / "warehouse") if kind == "iceberg" else table(dsn)

    @staticmethod
    def _connect(stack: ExitStack, name: str, connection: str) -> None:
        stack.enter_context(mock.patch.dict(os.environ, {variable_of(name): connection}))
