"""A real PostgreSQL whose changes a real Debezium writes to Kafka, once in each form of record."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import psycopg

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.kafka_connect import KafkaConnect, avro, schemas_beside
from sandbox.services.processes import wait_until
from sandbox.services.registry import SchemaRegistry
from sandbox.services.source_database import SourceDatabase
from tests.worlds.used_topics import delete_later

DATABASE: Final = "shop"
FORMS: Final = ("json", "schemas", "avro")
"""JSON, JSON with the schema beside each record, and Avro with a registry."""
_MARKER: Final = "CREATE TABLE marker (id int PRIMARY KEY, n bigint); INSERT INTO marker VALUES (1, 0)"


@dataclass
class SourceOfChanges:
    """The database ``shop``, and one connector for each form. ``prefix`` begins the names of their topics."""

    database: SourceDatabase
    broker: Broker
    registry: SchemaRegistry
    state: Path
    prefix: str = field(default_factory=lambda: f"p{uuid4().hex[:10]}")
    connect: KafkaConnect | None = None
    forms: tuple[str, ...] = ()

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, state: Path, broker: Broker, registry: SchemaRegistry, definitions: str
    ) -> Iterator["SourceOfChanges"]:
        """The database with its tables; no connector runs yet."""
        source = cls(SourceDatabase(state, STATE), broker, registry, state)
        try:
            with source.database:
                source.database.create_database(DATABASE)
                source.execute(_MARKER)
                source.execute(definitions)
                try:
                    yield source
                finally:
                    if source.connect is not None:
                        source.connect.stop()
                    delete_later(broker, *source.topics())
        finally:
            source.database.remove()

    @property
    def dsn(self) -> str:
        return self.database.dsn(DATABASE)

    def execute(self, *statements: str) -> None:
        """Each statement is a transaction."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[arg-type]

    def values(self, query: str) -> list[tuple[Any, ...]]:
        return rows_of(self.dsn, query)

    def topic(self, form: str, table: str) -> str:
        return f"{self.prefix}{form}.public.{table}"

    def topics(self) -> list[str]:
        return [topic for topic in self.broker.admin().list_topics(timeout=30).topics if topic.startswith(self.prefix)]

    def start_connect(self, *forms: str, **settings: str) -> KafkaConnect:
        """Start a worker with a connector for each form, which begins with a snapshot."""
        of_form = {"json": {}, "schemas": schemas_beside(),
                   "avro": avro(self.registry.url.replace("/ccompat/v7", "/registry/v2"))}  # fmt: skip
        connectors = {
            f"{self.prefix}{form}": {**self.connector(f"{self.prefix}{form}"), **of_form[form], **settings}
            for form in forms or FORMS
        }
        self.forms = forms or FORMS
        self.connect = KafkaConnect(self.state, STATE, self.broker.bootstrap_servers, connectors)
        self.connect.start()
        return self.connect

    def add_connector(self, name: str, settings: Mapping[str, str]) -> None:
        """Start another connector, as a user does, and wait until it runs."""
        assert self.connect is not None, "not started"
        httpx.put(f"{self.connect.url}/connectors/{name}/config", json=dict(settings), timeout=60).raise_for_status()
        self.connect.connectors[name] = settings
        wait_until(self.connect.runs, f"{name} to run", timeout=60)

    def connector(self, name: str) -> dict[str, str]:
        """The settings of a connector for JSON without schemas."""
        parts = psycopg.conninfo.conninfo_to_dict(self.dsn)
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": str(parts["host"]),
            "database.port": str(parts["port"]),
            "database.user": str(parts["user"]),
            "database.password": str(parts["password"]),
            "database.dbname": DATABASE,
            "schema.include.list": "public",
            "topic.prefix": name,
            "plugin.name": "pgoutput",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.retention.ms": "-1",
            "poll.interval.ms": "100",
        }

    def settle(self) -> None:
        """Return when all that was committed so far is in the topics: an offset is stored after its records are."""
        position = self.position()
        self.execute("UPDATE marker SET n = n + 1")
        for form in self.forms:
            self.wait_for(f"{self.prefix}{form}", position)

    def position(self) -> int:
        """The end of the log of the database."""
        [(position,)] = self.values("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")
        return int(position)

    def wait_for_snapshot(self, connector: str) -> None:
        """Return when a connector has written the last row of its snapshot.

        A change that rewrites a table must wait for it: PostgreSQL shows a snapshot that is older than the rewrite an
        empty table (its manual, "Caveats" of Concurrency Control), and Debezium would read no row.
        """
        self.wait_for(connector, 0)

    def wait_for(self, connector: str, position: int) -> None:
        """Return when a connector has written a change that is at the position of the log, or behind it."""
        assert self.connect is not None, "not started"
        self.connect.wait_for_offset(
            # In the middle of a snapshot, which may have begun behind the position, not all of it is written.
            connector,
            lambda offset: offset.get("lsn", 0) >= position and offset.get("last_snapshot_record", True),
        )


def rows_of(dsn: str, script: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement of a script, in a database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(script)  # type: ignore[arg-type]
        while cursor.nextset():
            pass
        return cursor.fetchall()
