"""Measures how long the commit of a manifest into an Iceberg table takes, by the number of kept snapshots.

Table and catalog are real; the catalog is in PostgreSQL, and files are in a folder. The older snapshots are copies of
the first one in the table's metadata, because a thousand real commits would take a quarter of an hour.
"""

import statistics
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table

from sandbox.services.postgres import Postgres
from tidemark.config.base import LoadContext
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.providers.iceberg.settings import Settings
from tidemark.providers.iceberg.staged import PARTITION, SPEC, data_folder, root_of
from tidemark.providers.iceberg.table import IcebergTarget
from tidemark.providers.lake_tables.output import DIGEST
from tidemark.providers.lake_tables.table_columns import stored_columns
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.sinks.base import Owner
from tidemark.times.event_time import INSTANT

REPEATS = 5
SNAPSHOTS = (10, 100, 1_000)
TABLE = "bench.commits"


def measure(postgres: Postgres, snapshots: int) -> dict[str, Any]:
    """The median time of ``REPEATS`` commits of one small file, into a table that keeps so many snapshots."""
    with postgres.temporary_database("catalog") as dsn, tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        target = _target(dsn, Path(folder), snapshots)
        target.claim(Owner("bench"))
        decode = {"format": "json", "schema": "n BIGINT"}
        table = target.check(stored_columns(decode, ()))
        assert table is not None
        _publish(target, 1)
        _keep(target.loaded(), snapshots)
        seconds = [_publish(target, 2 + number) for number in range(REPEATS)]
        assert len(target.loaded().metadata.snapshots) == snapshots
    return {"snapshots": snapshots, "seconds": statistics.median(seconds), "all_seconds": seconds}


def _target(dsn: str, folder: Path, snapshots: int) -> IcebergTarget:
    parts = conninfo_to_dict(dsn)
    connection: Mapping[str, Any] = {
        "conn_type": "postgres", "host": parts["host"], "port": parts["port"], "login": parts["user"],
        "password": parts.get("password"), "schema": parts["dbname"],
    }  # fmt: skip
    settings = Settings.model_validate(
        {"connection": "lakehouse", "table": TABLE, "warehouse": "warehouse", "auto_create": True,
         "keep_snapshots": snapshots},
        context=LoadContext(folder, folder),
    )  # fmt: skip
    return IcebergTarget("bench", settings, lambda _: connection)


def _publish(target: IcebergTarget, manifest_id: int) -> float:
    """Commit one manifest as publishing does it, and return the seconds."""
    table = target.loaded()
    key = f"{data_folder(manifest_id, 1)}/00000-0-00000.parquet"
    path = Path(root_of(table.location()), key)
    path.parent.mkdir(parents=True)
    footer = {PARTITION: b"[19783]", SPEC: str(table.spec().spec_id).encode()}
    schema = schema_to_pyarrow(table.schema()).with_metadata(footer)
    row = {"_topic": "t", "_topic_partition": 0, "_offset": manifest_id, "_manifest_id": manifest_id, "n": 1}
    when = pa.scalar(datetime(2024, 3, 1, tzinfo=UTC), INSTANT).as_py()
    pq.write_table(pa.Table.from_pylist([{**row, "_timestamp": when, "_event_time": when}], schema=schema), path)
    size = path.stat().st_size
    part = PublishedObject("iceberg", ObjectKind.DATA, key, "", "t", ((0, manifest_id, manifest_id),), 1, size, "")
    began = time.monotonic()
    staged = StagedAttempt(manifest_id, 1, (part,))
    target.publish(staged, {"tidemark.pipeline": "bench", DIGEST: "0"}, lambda: None)
    return time.monotonic() - began


def _keep(table: Table, snapshots: int) -> None:
    """Give the table so many snapshots, by copies of its newest one that come before it."""
    newest = table.metadata.snapshots[-1]
    ids = range(1, snapshots)
    older = [
        newest.model_copy(update={"snapshot_id": number, "parent_snapshot_id": number - 1 or None}) for number in ids
    ]
    last = newest.model_copy(update={"parent_snapshot_id": snapshots - 1})
    metadata = table.metadata.model_copy(update={"snapshots": [*older, last]})
    path = f"{table.location()}/metadata/{uuid4()}.metadata.json"
    ToOutputFile.table_metadata(metadata, table.io.new_output(path))
    catalog: Catalog = table.catalog
    catalog.drop_table(TABLE)
    catalog.register_table(TABLE, path)
