"""I31: publications, replays, rollbacks, expiries and other programs' commits in any order, against a model of rows.

The model does what the errors tell a person: a table that went back is accepted as it is, and what it lacks is
replayed. At every step all files that a snapshot names must be there.
"""

import random
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from sandbox.services.postgres import Postgres
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import from_environment
from tidemark.errors import Fenced
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.providers.iceberg.evidence import NEWEST
from tidemark.providers.iceberg.files import live_files
from tidemark.providers.iceberg.settings import Settings
from tidemark.providers.iceberg.sink import IcebergOutput, open_sink
from tidemark.providers.iceberg.staged import PARTITION, SPEC, data_folder, root_of
from tidemark.providers.lake_tables.output import DIGEST
from tidemark.providers.lake_tables.table_columns import stored_columns
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.sinks.base import Owner
from tidemark.times.event_time import INSTANT

WHEN = pa.scalar(datetime(2024, 3, 1, tzinfo=UTC), INSTANT).as_py()
Row = tuple[int, int]  # offset, and what the code of the attempt has made of it
Current = dict[int, tuple[int, int, int]]


class History:
    """One table, what a manifest database knows of it, and what others do to it."""

    options: ClassVar[dict[str, Any]] = {}
    schema: ClassVar[str] = "n BIGINT"

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        values = {
            "connection": "warehouse", "table": f"sales.latest{seed}", "warehouse": "warehouse", "auto_create": True,
            "partition_by": [], "keep_snapshots": self.dice.choice((1, 3, 100)), **self.options,
        }  # fmt: skip
        self.name = str(values["table"])
        settings = Settings.model_validate(values, context=LoadContext(folder, folder))
        self.sink = open_sink("demo", settings, from_environment)
        assert isinstance(self.sink.output, IcebergOutput)
        self.target = self.sink.output.table
        self.target.claim(Owner("A"))
        decode = {"format": "json", "schema": self.schema}
        self.target.check(stored_columns(decode, (), keyed=self.target.keyed))
        self.attempts: Counter[int] = Counter()
        self.published: dict[int, tuple[int, set[Row]]] = {}
        self.position = 0
        self.heads: set[int] = set()  # PyIceberg compacts in two snapshots, and the first has no row
        self.steps: list[str] = []

    # what Tidemark does

    def publish(self) -> None:
        self._put(len(self.attempts) + 1)

    def replay(self) -> None:
        if self.published:
            self._put(self.dice.choice(sorted(self.published)))

    def _put(self, manifest_id: int) -> None:
        self.look()
        self.attempts[manifest_id] += 1
        attempt = self.attempts[manifest_id]
        values = [10 * manifest_id + place for place in range(self.dice.choice((0, 2, 2, 3)))]
        made = self.dice.choice((attempt, attempt % 2))  # the same rows as an earlier one, or others
        rows = {(offset, made) for offset in values}
        staged = self._staged(manifest_id, attempt, rows)
        if self.dice.random() < 0.15:  # it dies before its commit
            self.sink.staging.clear(manifest_id, attempt)
            return
        self._publish(staged, rows)
        self.published[manifest_id] = (attempt, rows)
        self.position = max(self.position, self.target.evidence().number)
        for number in range(1, attempt + 1):
            self.sink.staging.clear(manifest_id, number)

    def _publish(self, staged: StagedAttempt, rows: set[Row]) -> None:
        self.target.publish(staged, {DIGEST: str(sorted(rows))}, lambda: None)

    def _staged(self, manifest_id: int, attempt: int, rows: set[Row]) -> StagedAttempt:
        if not rows:
            return StagedAttempt(manifest_id, attempt, ())
        table = self.target.loaded()
        key = f"{data_folder(manifest_id, attempt)}/00000-0-00000-{uuid4().hex}.parquet"
        path = Path(root_of(table.location()), key)
        path.parent.mkdir(parents=True, exist_ok=True)
        footer = {PARTITION: b"[]", SPEC: str(table.spec().spec_id).encode()}
        schema = schema_to_pyarrow(table.schema()).with_metadata(footer)
        content = [self.row(manifest_id, attempt, *row) for row in sorted(rows)]
        pq.write_table(pa.Table.from_pylist(content, schema=schema), path)
        size = path.stat().st_size
        part = PublishedObject(self.sink.name, ObjectKind.DATA, key, "", "t", ((0, 0, 0),), len(rows), size, "")
        return StagedAttempt(manifest_id, attempt, (part,))

    def row(self, manifest_id: int | None, attempt: int, offset: int, n: int) -> dict[str, Any]:
        del attempt
        place = {"_topic": "t", "_topic_partition": 0, "_offset": offset, "_timestamp": WHEN, "_event_time": WHEN}
        return {**place, "_manifest_id": manifest_id, "n": n}

    def look(self) -> None:
        """What a run and an audit do before they go on: refuse, and then what a person does about it."""
        if self.target.evidence().number < self.position:
            self.position = self.target.evidence().number
            while missing := self.missing():  # until no replay of them dies any more
                self.steps.append(f"adopted at {self.position}, replays {missing}")
                for manifest_id in missing:
                    self._put(manifest_id)

    def missing(self) -> list[int]:
        """The manifests that the audit names: the table does not show what is published of them."""
        shown = self.target.evidence().attempts
        return [number for number, (attempt, _) in self.published.items() if shown.get(number) != attempt]

    # what others do

    def roll_back(self) -> None:
        with self.changing() as table:
            there = [
                snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id in self.heads
            ]
            if there:
                table.manage_snapshots().set_current_snapshot(self.dice.choice(there)).commit()

    def expire(self) -> None:
        with self.changing() as table:
            table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()

    def expire_some(self) -> None:
        with self.changing() as table:
            heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
            there = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
            table.maintenance.expire_snapshots().by_ids(
                [number for number in there if self.dice.random() < 0.5]
            ).commit()

    def forget_log(self) -> None:
        with self.changing() as table:
            for number in range(2):
                with table.transaction() as change:
                    change.set_properties({"write.metadata.previous-versions-max": "1", "of.others": str(number)})

    def compact(self) -> None:
        with self.changing() as table:
            if table.current_snapshot():
                table.overwrite(table.scan().to_arrow())

    def append(self) -> None:
        with self.changing() as table:
            row = self.row(None, 0, -1, 0)
            table.append(pa.Table.from_pylist([row], schema=schema_to_pyarrow(table.schema())))

    def tag(self) -> None:
        with self.changing() as table:
            if current := table.current_snapshot():
                table.manage_snapshots().create_tag(current.snapshot_id, f"t{len(self.steps)}").commit()

    def untag(self) -> None:
        with self.changing() as table:
            names = [name for name in table.metadata.refs if name not in ("main", NEWEST)]
            if names:
                table.manage_snapshots().remove_tag(self.dice.choice(names)).commit()

    def changing(self) -> Any:
        return self.target.reading()

    # what must be true

    def check(self) -> None:
        table = self.target.loaded()
        self.heads.add(table.metadata.current_snapshot_id or 0)
        gone = [path for path in self.named(table) if not Path(path).exists()]
        assert not gone, f"a snapshot names files that are gone: {gone}"
        if self.target.evidence().number >= self.position:  # no command would refuse it
            expected = Counter(row for _, rows in self.published.values() for row in rows)
            rows = table.scan(selected_fields=("_offset", "n")).to_arrow().to_pylist()
            assert Counter((row["_offset"], row["n"]) for row in rows if row["_offset"] >= 0) == expected

    def named(self, table: Table) -> Iterator[str]:
        for entry in live_files(table, table.metadata.snapshots, deletes=True):
            yield root_of(entry.data_file.file_path)


class KeyedHistory(History):
    """A table with one row for each ``id``, beside what it must have at each snapshot that others roll back to."""

    options: ClassVar[dict[str, Any]] = {"key": ["id"], "order_by": "n"}
    schema: ClassVar[str] = "id BIGINT NOT NULL, n BIGINT NOT NULL"

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.current: Current = {}
        self.at_snapshot: dict[int, Current] = {0: {}}

    def row(self, manifest_id: int | None, attempt: int, offset: int, n: int) -> dict[str, Any]:
        key = {"id": None if manifest_id is None else key_of(offset, n)}
        return {
            **super().row(manifest_id, attempt, offset, n), **key, "_is_deleted": False, "_log_generation": 0,
            "_attempt": attempt,
        }  # fmt: skip

    def _publish(self, staged: StagedAttempt, rows: set[Row]) -> None:
        super()._publish(staged, rows)
        self.current = merged(self.current, staged.attempt, rows)

    def roll_back(self) -> None:
        before = self.target.loaded().metadata.current_snapshot_id
        super().roll_back()
        now = self.target.loaded().metadata.current_snapshot_id
        if now != before:
            self.current = self.at_snapshot[now or 0]

    def check(self) -> None:
        table = self.target.loaded()
        self.heads.add(table.metadata.current_snapshot_id or 0)
        self.at_snapshot[table.metadata.current_snapshot_id or 0] = self.current
        gone = [path for path in self.named(table) if not Path(path).exists()]
        assert not gone, f"a snapshot names files that are gone: {gone}"
        rows = [row for row in table.scan().to_arrow().to_pylist() if row["_offset"] >= 0]
        assert len({row["id"] for row in rows}) == len(rows), "a key has one row"
        assert {row["id"]: (row["n"], row["_offset"], row["_attempt"]) for row in rows} == self.current


def key_of(offset: int, n: int) -> int:
    """Of the code of an attempt, too: other code gives some records another key."""
    return (offset + n // 3) % 7


def merged(current: Current, attempt: int, rows: set[Row]) -> Current:
    """By key the value of ``order_by``, the offset and the attempt of the row that stands after a merge."""
    newest: Current = {}
    for offset, n in sorted(rows, key=lambda row: (row[1], row[0])):
        newest[key_of(offset, n)] = (n, offset, attempt)
    made = {(key_of(offset, n), offset) for offset, n in rows}
    after = dict(current)
    for key, row in newest.items():
        standing = current.get(key)
        if standing is None or (standing[2] < attempt if (key, standing[1]) in made else standing < row):
            after[key] = row
    return after


def test_an_attempt_whose_number_was_given_out_again_is_refused_also_when_no_snapshot_tells_them_apart(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.temporary_database("warehouse") as warehouse:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", warehouse)
        history = History(tmp_path, 1)
        staged = history._staged(1, 1, {(0, 1)})
        history.target.publish(staged, {DIGEST: "of the older life"}, lambda: None)
        history.compact()
        history.compact()
        history.expire()
        assert history.target.evidence().attempts == {1: 1}
        with pytest.raises(Fenced):
            history.target.publish(staged, {DIGEST: "of the newer life"}, lambda: None)


FEW, MANY = 4, 36  # histories; the few are always the same, the others new each time


@pytest.mark.parametrize(
    "number", [*range(FEW), *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(FEW, MANY))]
)
@pytest.mark.parametrize("kind", [History, KeyedHistory])
def test_whatever_others_do_no_row_is_missing_or_twice_and_no_named_file_is_gone(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[History]
) -> None:
    seed = number if number < FEW else secrets.randbelow(10**9)
    with postgres.temporary_database("warehouse") as warehouse:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", warehouse)
        history = kind(tmp_path, seed)
        own = [history.publish, history.publish, history.replay, history.look]
        others = [
            history.roll_back, history.expire, history.expire_some, history.compact, history.append, history.tag,
            history.untag, history.forget_log,
        ]  # fmt: skip
        try:
            for _ in range(4):
                history.publish()
            for _ in range(16):
                step = history.dice.choice(own if history.dice.random() < 0.5 else others)
                history.steps.append(step.__name__)
                step()
                history.check()
            history.look()
            history.check()
        except Exception as error:
            error.add_note(f"seed {seed}: {', '.join(history.steps)}")
            raise
