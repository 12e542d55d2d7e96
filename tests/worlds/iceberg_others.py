"""Changes that other programs make to an Iceberg table: compact it, expire its snapshots, roll it back; and reads of
its past."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table

from tests.worlds.iceberg_world import IcebergWorld
from tests.worlds.world import Place
from tidemark.providers.iceberg.position_deletes import DeletedRows, RowDelta, write_deletes

PLACE = ("_topic", "_topic_partition", "_offset")


def current(world: IcebergWorld) -> int:
    table = world.table()
    assert table is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def compact(world: IcebergWorld) -> None:
    """All rows go into one file in each partition."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        table.overwrite(table.scan().to_arrow())


def delete_a_row(world: IcebergWorld, manifest_id: int) -> None:
    """As somebody does who has to forget a person: one row of a manifest goes, and its file is written again."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        rows = table.scan(f"_manifest_id = {manifest_id}", selected_fields=("n",)).to_arrow()
        table.delete(f"n = {pc.min(rows.column('n')).as_py()}")


def append_a_stranger(world: IcebergWorld) -> None:
    """A row of no manifest, as another program may add it."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        row = table.scan(limit=1).to_arrow()
        table.append(pa.Table.from_pylist([{**row.to_pylist()[0], "_manifest_id": None, "_offset": -1}], row.schema))


def expire(world: IcebergWorld) -> None:
    """All snapshots go but those of branches and tags; their files are left to another program."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()


def forget_older_metadata(world: IcebergWorld) -> None:
    """The log of the table's older metadata ends where all is expired already, as after many commits of others."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        for number in range(2):
            with table.transaction() as change:
                change.set_properties({"write.metadata.previous-versions-max": "1", "of.others": str(number)})


def roll_back(world: IcebergWorld, snapshot_id: int) -> None:
    with world.catalog() as catalog:
        catalog.load_table(world.written).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def delete_by_position(world: IcebergWorld, k: int) -> None:
    """As programs do that merge on read: the delete file does not say that it is of one data file."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        deletes = []
        for task in table.scan().plan_files():
            rows = ArrowScan(table.metadata, table.io, table.schema().select("k"), AlwaysTrue())
            keys = rows.to_table([FileScanTask(task.file)]).column("k")
            positions = pc.indices_nonzero(pc.equal(keys, k)).cast(pa.int64())
            if len(positions):
                [file] = write_deletes(table, "data/others", [DeletedRows(task.file, positions)])
                deletes.append(_without_bounds(file))
        _commit_deletes(table, deletes)


def delete_by_value(world: IcebergWorld, k: int) -> None:
    """As Flink does."""
    with world.catalog() as catalog:
        table = catalog.load_table(world.written)
        path = f"{table.location()}/data/others/{uuid4()}.parquet"
        field = table.schema().find_field("k")
        column = pa.field("k", pa.int64(), metadata={"PARQUET:field_id": str(field.field_id)})
        with table.io.new_output(path).create() as file:
            pq.write_table(pa.table([pa.array([k])], schema=pa.schema([column])), file)
        task = next(iter(table.scan(f"k = {k}").plan_files()))
        deletes = DataFile.from_args(
            content=DataFileContent.EQUALITY_DELETES, file_path=path, file_format=FileFormat.PARQUET,
            partition=task.file.partition, record_count=1, file_size_in_bytes=len(table.io.new_input(path)),
            equality_ids=[field.field_id],
        )  # fmt: skip
        deletes.spec_id = task.file.spec_id
        _commit_deletes(table, [deletes])


def _without_bounds(file: DataFile) -> DataFile:
    other = DataFile.from_args(
        content=file.content, file_path=file.file_path, file_format=file.file_format, partition=file.partition,
        record_count=file.record_count, file_size_in_bytes=file.file_size_in_bytes,
    )  # fmt: skip
    other.spec_id = file.spec_id
    return other


def _commit_deletes(table: Table, deletes: list[DataFile]) -> None:
    transaction = table.transaction()
    with RowDelta(transaction, table, {}, added=deletes, removed=[]):
        pass
    transaction.commit_transaction()


def upgrade_to_version_3(world: IcebergWorld) -> None:
    """As Spark does; PyIceberg reads such tables, and does not make them."""
    table = world.table()
    assert table is not None
    before = Path(table.metadata_location.removeprefix("file://"))
    after = before.with_name(f"v3-{before.name}")
    after.write_text(json.dumps({**json.loads(before.read_text()), "format-version": 3, "next-row-id": 0}))
    with psycopg.connect(world.targets["warehouse"]) as connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = %s", [f"file://{after}"])


def tag(world: IcebergWorld, snapshot_id: int, name: str) -> None:
    with world.catalog() as catalog:
        catalog.load_table(world.written).manage_snapshots().create_tag(snapshot_id, name).commit()


def rows_at(table: Table, snapshot_id: int) -> Counter[Place]:
    """What a reader sees who travels back to a snapshot; reads its files."""
    rows = table.scan(snapshot_id=snapshot_id, selected_fields=PLACE).to_arrow()
    return Counter(zip(*(rows[name].to_pylist() for name in PLACE), strict=True))


def rows_of_snapshots(world: IcebergWorld) -> dict[int, Counter[Place]]:
    """What readers of every snapshot see that the table keeps."""
    table = world.table()
    assert table is not None
    return {snapshot.snapshot_id: rows_at(table, snapshot.snapshot_id) for snapshot in table.metadata.snapshots}
