"""The files of a table: those that its log names, their rows, and the log's actions for new files."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tidemark.errors import THEN_RETRY, WorkFailed
from tidemark.model.digest import Digest, row_digest
from tidemark.model.receipt import PublishedObject
from tidemark.providers.delta.columns import arrow_columns
from tidemark.providers.delta.writer import ROWS, decoded_schema
from tidemark.providers.lake_tables.nested import conformed
from tidemark.providers.tables.column_names import names_of_rows, stored_names
from tidemark.storage.base import ObjectStore

READERS: Final = 8  # footers that are read at the same time
READ_ROWS: Final = 64 * 1024  # rows in memory at a time
STATISTICS: Final = 32  # the first columns, which get statistics, as with Delta's own writers


@dataclass(frozen=True)
class TableFile:
    """A file that the log names. ``rows`` is None if the writer that added it did not record how many rows it has."""

    path: str
    bytes: int
    rows: int | None
    value: Any  # the value of its partition

    def removed(self, partition: str) -> RemoveAction:
        values = {partition: None if self.value is None else str(self.value)}
        return RemoveAction(self.path, True, now_ms(), self.bytes, values)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def files_of(table: DeltaTable, partition: str) -> list[TableFile]:
    """Return all files that the newest version names."""
    named = pa.table(table.get_add_actions(flatten=True))
    columns = [named.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
    return [TableFile(*row) for row in zip(*columns, named.column(f"partition.{partition}").to_pylist(), strict=True)]


def added(
    store: ObjectStore, table: DeltaTable, partition: str, value: int, objects: Sequence[PublishedObject]
) -> list[AddAction]:
    """Return Delta's ``add`` actions for the files of an attempt, which must already be at their final paths.

    Raises ``WorkFailed`` if a file is missing or has another size, or has a column that the table no longer has.
    """
    columns = arrow_columns(table)

    def action(part: PublishedObject) -> AddAction:
        footer = footer_of(store, part.path, part.bytes)
        refuse_changed(columns, footer.schema.to_arrow_schema())
        return add_action(part.path, part.bytes, {partition: str(value)}, footer)

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(action, objects))


def add_action(path: str, size: int, values: dict[str, str | None], footer: Any) -> AddAction:
    return AddAction(path, size, values, now_ms(), True, json.dumps(_statistics(footer)))


def refuse_changed(columns: pa.Schema, staged: pa.Schema) -> None:
    """Raise ``WorkFailed`` if the staged rows do not fit the columns that the table has now."""
    for field in staged:
        if field.name not in columns.names or columns.field(field.name).type != field.type:
            raise WorkFailed(
                f"column {field.name} of the table was removed, or got another type, after the rows were staged",
                next_step="nothing was published; tidemark retry {pipeline}",
            )


def footer_of(store: ObjectStore, path: str, size: int) -> Any:
    """Return the footer of a file; ``WorkFailed`` if the file is missing or does not have this size."""
    try:
        if store.size(path) == size:
            with store.open(path) as file:
                return pq.read_metadata(file)
    except FileNotFoundError:
        pass
    raise WorkFailed(
        f"a file is missing, or does not have its expected size of {size:,} bytes: {path}",
        next_step="nothing was published; VACUUM must leave files alone that are younger than an attempt takes"
        + THEN_RETRY,
    )


def _statistics(footer: Any) -> dict[str, Any]:
    """Return counts of rows and nulls, and bounds, in Delta's form.

    Numbers that may be NaN, and texts, get no bounds, because readers may take such bounds for more exact than they
    are.
    """
    schema = footer.schema.to_arrow_schema()
    lowest, highest, nulls = {}, {}, {}
    after = 0
    for field in list(schema)[:STATISTICS]:
        # Find the column by position, because the path of a field inside a struct may be the name of another column.
        at, after = after, after + _leaves(field.type)
        if pa.types.is_nested(field.type):
            continue
        groups = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
        if not all(group is not None and group.has_null_count for group in groups):
            continue
        nulls[field.name] = sum(group.null_count for group in groups)
        bounded = [group for group in groups if group.has_min_max]
        filled = [group for group in groups if group.num_values]
        if bounded and len(bounded) == len(filled) and _has_bounds(field.type):
            lowest[field.name] = _bound(min(group.min for group in bounded), up=False)
            upper = _bound(max(group.max for group in bounded), up=True)
            if upper is not None:
                highest[field.name] = upper
    return {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _leaves(kind: pa.DataType) -> int:
    """Return how many Parquet columns a column of this type takes."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz))


def _bound(value: Any, *, up: bool) -> Any:
    """Return a bound in Delta's JSON form. Times are in milliseconds, an upper bound is rounded up; None for the year
    10000."""
    if isinstance(value, datetime):
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if up and cut < value:
            try:
                cut += timedelta(milliseconds=1)
            except OverflowError:
                return None
        return cut.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value


def rows_of_files(
    store: ObjectStore, files: Iterable[TableFile], columns: pa.Schema, partition: str
) -> Iterator[pa.RecordBatch]:
    """Yield rows with these columns, a bounded number at a time. A column that a file lacks is null; the partition
    comes from the log.

    Raises ``OSError`` for a file that is missing or unreadable, and Arrow's error for a value that does not have the
    type.
    """
    for file in files:
        with store.open(file.path) as opened:
            try:
                parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")  # Spark's own type of times
                own = [name for name in columns.names if name in parquet.schema_arrow.names and name != partition]
                for batch in parquet.iter_batches(READ_ROWS, columns=own):
                    yield _with_columns(batch, columns, partition, file.value)
            except pa.ArrowException as error:
                raise OSError(f"{file.path} cannot be read: {error}") from error


def _with_columns(batch: pa.RecordBatch, columns: pa.Schema, partition: str, value: Any) -> pa.RecordBatch:
    arrays = []
    for field in columns:
        if field.name == partition:
            arrays.append(pa.repeat(pa.scalar(value, field.type), batch.num_rows))
        elif field.name in batch.schema.names:
            arrays.append(conformed(batch.column(field.name), field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def digest_of_files(store: ObjectStore, files: Iterable[TableFile], columns: pa.Schema, partition: str) -> Digest:
    """Return the digest of rows, computed with the column names that tasks use."""
    named = names_of_rows(columns.names)
    batches = rows_of_files(store, files, columns, partition)
    return sum((row_digest(batch.rename_columns(named)) for batch in batches), Digest.zero())


def is_as_written(store: ObjectStore, part: PublishedObject, partition: str, value: int) -> bool:
    """Return whether a file still holds exactly the rows that an attempt wrote; reads the whole file. False if somebody
    has rewritten it."""
    try:
        with store.open(part.path) as opened:
            before = (pq.read_metadata(opened).metadata or {}).get(ROWS)
        if before is None:
            return False
        rows = decoded_schema(before.decode())
        columns = pa.schema([field.with_name(name) for field, name in zip(rows, stored_names(rows.names), strict=True)])
        file = TableFile(part.path, part.bytes, part.rows, value)
        return str(digest_of_files(store, [file], columns, partition)) == part.digest
    except (OSError, pa.ArrowException):
        return False


def rows_at(
    store: ObjectStore, files: Iterable[TableFile], place: Mapping[str, Any], columns: pa.Schema, partition: str
) -> list[dict[str, Any]]:
    """Return the rows that have these values in the columns of ``place``."""
    rows: list[dict[str, Any]] = []
    for batch in rows_of_files(store, files, columns, partition):
        chosen = batch
        for name, value in place.items():
            chosen = chosen.filter(pc.equal(chosen.column(name), value))
        rows += chosen.to_pylist()
    return rows
