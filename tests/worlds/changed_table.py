"""A real PostgreSQL table with random changes, and its change stream in Debezium's forms.

A trigger logs each change in order. From this log, records are made as Debezium's connector for PostgreSQL writes them,
without schemas (source: "Data change events" and "Data type mappings" of its documentation, with the defaults
``decimal.handling.mode=precise`` and ``time.precision.mode=adaptive``). The table has REPLICA IDENTITY FULL.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from sandbox.services.broker import Broker

COLUMNS: Final = ("id", "state", "price", "note", "created_at", "changed_at", "day", "tags")
DECODE: Final[dict[str, Any]] = {
    "format": "json",
    "schema": "id BIGINT NOT NULL, state STRING NOT NULL, price DECIMAL(10,2), note STRING, created_at TIMESTAMP, "
    "changed_at TIMESTAMP, day DATE, tags ARRAY<STRING>",
    "tombstones": ["id"],
    "envelope": {"debezium": {"times": {"created_at": "us"}, "decimals": "base64"}},
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES: Final = """
    CREATE SCHEMA shop;
    CREATE TABLE shop.orders (
        id bigint PRIMARY KEY, state text NOT NULL, price numeric(10, 2), note text, created_at timestamp,
        changed_at timestamptz NOT NULL, day date, tags text[]);
    CREATE TABLE shop.changes (number bigserial PRIMARY KEY, op text, key bigint, old jsonb, new jsonb, txid bigint);
    CREATE FUNCTION shop.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'UPDATE' AND OLD.id <> NEW.id THEN  -- as Debezium writes a key that changed
            INSERT INTO shop.changes (op, key, old, txid) VALUES ('d', OLD.id, to_jsonb(OLD), txid_current());
            INSERT INTO shop.changes (op, key, new, txid) VALUES ('c', NEW.id, to_jsonb(NEW), txid_current());
        ELSIF TG_OP = 'DELETE' THEN
            INSERT INTO shop.changes (op, key, old, txid) VALUES ('d', OLD.id, to_jsonb(OLD), txid_current());
        ELSE
            INSERT INTO shop.changes (op, key, old, new, txid)
            VALUES (CASE TG_OP WHEN 'INSERT' THEN 'c' ELSE 'u' END, NEW.id,
                    CASE TG_OP WHEN 'UPDATE' THEN to_jsonb(OLD) END, to_jsonb(NEW), txid_current());
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON shop.orders
        FOR EACH ROW EXECUTE FUNCTION shop.note_change();
"""


@dataclass
class ChangedTable:
    """The table ``shop.orders``, and a connector that writes its changes to a topic.

    All records of a key are in one partition. ``lost_tombstones`` says how often the tombstone after a deletion is
    missing.
    """

    dsn: str
    broker: Broker
    topic: str
    partitions: int
    random: Random
    keys: int = 12
    lost_tombstones: float = 0.3
    _sent: int = 0
    _last: list[tuple[int, bytes | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        with self._connected() as connection:
            connection.execute(_TABLES)  # type: ignore[arg-type]

    def _connected(self) -> psycopg.Connection[dict[str, Any]]:
        return psycopg.connect(self.dsn, row_factory=dict_row)

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """The rows of the table, by key."""
        with self._connected() as connection:
            rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM shop.orders").fetchall()
        return {row["id"]: tuple(_comparable(row[name]) for name in COLUMNS) for row in rows}

    def change(self, count: int) -> None:
        """Change the table so often, in transactions of several changes; some of them are rolled back."""
        left = count
        while left > 0:
            size = self.random.randint(1, 4)
            with self._connected() as connection:
                for _ in range(size):
                    self._change_once(connection)
                if self.random.random() < 0.1:
                    connection.rollback()
            left -= size

    def _change_once(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        key = self.random.randrange(self.keys)
        match self.random.choice(["write", "write", "write", "delete", "move"]):
            case "write":
                names = ", ".join(COLUMNS)
                marks = ", ".join(["%s"] * len(COLUMNS))
                changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in COLUMNS[1:])
                connection.execute(
                    f"INSERT INTO shop.orders ({names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {changes}",  # type: ignore[arg-type]
                    [key, *self._values()],
                )
            case "delete":
                connection.execute("DELETE FROM shop.orders WHERE id = %s", [key])
            case "move":
                other = self.random.randrange(self.keys)
                connection.execute(
                    "UPDATE shop.orders SET id = %(other)s WHERE id = %(key)s "
                    "AND NOT EXISTS (SELECT FROM shop.orders WHERE id = %(other)s)",
                    {"key": key, "other": other},
                )

    def _values(self) -> list[Any]:
        moment = _EPOCH + timedelta(microseconds=self.random.randrange(-(10**15), 3 * 10**15))
        if moment.year == 1970:  # such numbers are taken for milliseconds
            moment = moment.replace(year=1971)
        draw = self.random.random
        return [
            self.random.choice(["new", "paid", "sent", "ünïcode"]),
            None if draw() < 0.2 else Decimal(self.random.randrange(-(10**10) + 1, 10**10)).scaleb(-2),
            None if draw() < 0.2 else f"note {self.random.randrange(1000)}",
            None if draw() < 0.2 else moment.replace(tzinfo=None),
            moment,
            None if draw() < 0.2 else moment.date(),
            None if draw() < 0.2 else [f"tag {number}" for number in range(self.random.randrange(3))],
        ]

    # the connector

    def send(self) -> int:
        """Write all new changes to the topic; returns how many records that made."""
        return self._write([*self._again(), *self._new(), *self._snapshot()])

    def _again(self) -> list[tuple[int, bytes | None]]:
        """Now and then a connector that died sends its last records again."""
        if self.random.random() > 0.3:
            return []
        return self._last[-self.random.randint(1, 5) :]

    def _new(self) -> Iterator[tuple[int, bytes | None]]:
        with self._connected() as connection:
            changes = connection.execute(
                "SELECT * FROM shop.changes WHERE number > %s ORDER BY number", [self._sent]
            ).fetchall()
        for change in changes:
            self._sent = change["number"]
            yield change["key"], _record(change["op"], change["old"], change["new"], change["number"], change["txid"])
            if change["op"] == "d" and self.random.random() >= self.lost_tombstones:
                yield change["key"], None

    def _snapshot(self) -> list[tuple[int, bytes | None]]:
        """Rows of an incremental snapshot: as they are now, and without a position in the log."""
        with self._connected() as connection:
            rows = connection.execute("SELECT to_jsonb(orders) AS row FROM shop.orders").fetchall()
        chosen = self.random.sample(rows, min(len(rows), self.random.randrange(3)))
        return [(each["row"]["id"], _record("r", None, each["row"], None, None)) for each in chosen]

    def _write(self, records: list[tuple[int, bytes | None]]) -> int:
        producer = self.broker.producer()
        for key, value in records:
            producer.produce(self.topic, value, key=json.dumps({"id": key}).encode(), partition=key % self.partitions)
        assert producer.flush(30) == 0
        self._last = [*self._last, *records][-20:]
        return len(records)


def _record(op: str, before: Any, row: Any, lsn: int | None, txid: int | None) -> bytes:
    source = {"version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_000,
              "snapshot": "incremental" if op == "r" else "false", "db": "shop", "schema": "shop", "table": "orders",
              "txId": txid, "lsn": lsn}  # fmt: skip
    before, after = (None if each is None else _encoded(each) for each in (before, row))
    return json.dumps(
        {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_001, "transaction": None},
        separators=(",", ":"),
    ).encode()


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    """A row as ``to_jsonb`` gives it, with the values as Debezium writes them."""
    created, changed, day = row["created_at"], row["changed_at"], row["day"]
    return {
        **row,
        "price": None if row["price"] is None else _unscaled(Decimal(str(row["price"]))),
        "created_at": None if created is None else _microseconds(datetime.fromisoformat(created).replace(tzinfo=UTC)),
        "changed_at": datetime.fromisoformat(changed).astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "day": None if day is None else (date.fromisoformat(day) - _EPOCH.date()).days,
    }


def _unscaled(price: Decimal) -> str:
    digits = int(price.scaleb(2))
    return b64encode(digits.to_bytes((digits.bit_length() + 8) // 8, "big", signed=True)).decode()


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _comparable(value: Any) -> Any:
    """A value that is equal in whatever engine it is read; a time without a zone is in UTC."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value


def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row that was read from a target, as ``ChangedTable.rows`` has it."""
    return tuple(_comparable(row[name]) for name in COLUMNS)
