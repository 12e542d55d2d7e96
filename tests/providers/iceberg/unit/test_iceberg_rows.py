"""Rows of a file that others have compacted, read and written again: they stay what they were."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tidemark.errors import SinkRefused
from tidemark.model.digest import row_digest
from tidemark.providers.iceberg.columns import partitioning, refuse_misfits, schema_for
from tidemark.providers.iceberg.files import replaced, rows_of_manifest
from tidemark.providers.iceberg.partitioning import Term

STRUCT = pa.struct([("sku", pa.string()), ("n", pa.int32())])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()), ("p", pa.string()), ("day", pa.date32()), ("lines", pa.list_(STRUCT)),
        ("deep", pa.list_(pa.list_(STRUCT))), ("m", pa.map_(pa.string(), STRUCT)),
        ("ml", pa.map_(pa.string(), pa.list_(STRUCT))), ("s", pa.struct([("l", pa.list_(STRUCT))])),
        ("tags", pa.list_(pa.string())), ("_manifest_id", pa.int64()),
    ]
)  # fmt: skip
FULL = {
    "lines": [None, {"sku": None, "n": 1}], "deep": [None, [], [None, {"sku": "x", "n": None}]],
    "m": [("k", None), ("l", {"sku": "x", "n": None})], "ml": [("k", None), ("l", []), ("o", [None])],
    "s": {"l": [None]}, "tags": [None, ""],
}  # fmt: skip
EMPTY: dict[str, Any] = {"lines": [], "deep": [], "m": [], "ml": [], "s": {"l": []}, "tags": []}
NESTED = (FULL, EMPTY, {**EMPTY, "s": {"l": None}}, {}, FULL)
ROWS = [
    {"id": at, "p": "a\x1fb", "day": at, "_manifest_id": manifest, **dict.fromkeys(EMPTY), **row}
    for at, (manifest, row) in enumerate((manifest, row) for row in NESTED for manifest in (1, 2))
]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("t", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("lake")
    yield made
    made.engine.dispose()


def compacted(catalog: SqlCatalog, path: Path, terms: tuple[Term, ...] = ()) -> Table:
    """A table whose one file has rows of two manifests."""
    schema = schema_for(COLUMNS)
    spec = partitioning(schema, terms) if terms else PartitionSpec()
    table = catalog.create_table("lake.t", schema=schema, partition_spec=spec)
    file = path / "compacted.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, schema=COLUMNS), file)
    table.add_files([f"file://{file}"])
    return table


def rows_in(files: list[Any]) -> list[dict[str, Any]]:
    rows = [row for file in files for row in pq.read_table(file.file_path.removeprefix("file://")).to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def as_read(manifest: int) -> list[dict[str, Any]]:
    rows = [row for row in ROWS if row["_manifest_id"] == manifest]
    return pa.Table.from_pylist(rows, schema=COLUMNS).to_pylist()


def test_the_rows_that_stay_in_a_file_keep_what_is_null_and_what_is_empty(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = compacted(catalog, tmp_path)
    [file] = list(replaced(table, 1).rewritten(table))
    assert rows_in([file]) == as_read(2)
    assert (file.record_count, file.spec_id, list(file.partition)) == (5, 0, [])
    physical = pq.read_schema(file.file_path.removeprefix("file://"))
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in physical}
    assert ids == {field.name: field.field_id for field in table.schema().fields}
    sku = physical.field("lines").type.value_type.field("sku")
    assert int(sku.metadata[b"PARQUET:field_id"]) == table.schema().find_field("lines.element.sku").field_id


def test_rows_of_a_manifest_have_the_digest_that_they_were_written_with(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = compacted(catalog, tmp_path)
    expected = pa.Table.from_pylist([row for row in ROWS if row["_manifest_id"] == 2], schema=COLUMNS)
    rows = rows_of_manifest(table, 2)
    assert rows.to_pylist() == expected.to_pylist()
    assert row_digest(rows.cast(COLUMNS)) == row_digest(expected)
    assert rows_of_manifest(table, 3, ["id"]).num_rows == 0


def test_rows_that_stay_go_to_the_partitions_that_the_table_has_now(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = compacted(catalog, tmp_path)
    with table.update_spec() as update:
        update.add_identity("p")
        update.add_field("day", "year")
        update.add_identity("day")
    table = catalog.load_table("lake.t")
    files = list(replaced(table, 1).rewritten(table))
    assert rows_in(files) == as_read(2)
    assert sorted(list(file.partition) for file in files) == [["a\x1fb", 0, at] for at in range(1, 10, 2)]


@pytest.mark.parametrize("name", ["größe", "1st", "名前"])
def test_a_partition_of_a_new_table_has_a_name_that_avro_has(name: str) -> None:
    schema = schema_for(pa.schema([(name, pa.string())]))
    spec = partitioning(schema, (Term(name, "identity"), Term(name, "truncate[2]")))
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", field.name) for field in spec.fields)
    assert {schema.find_column_name(field.source_id) for field in spec.fields} == {name}
    assert len({field.name for field in spec.fields}) == 2


def test_a_partition_of_a_table_with_another_name_is_refused(catalog: SqlCatalog) -> None:
    schema = schema_for(pa.schema([("größe", pa.string())]))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "größe"))
    table = catalog.create_table("lake.t", schema=schema, partition_spec=spec)
    with pytest.raises(SinkRefused, match="the partition größe of the table has a name that Avro does not allow"):
        refuse_misfits(table, schema, (Term("größe", "identity"),), {}, widens=False)


def test_a_file_without_a_newer_field_has_null_there(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = compacted(catalog, tmp_path)
    with table.update_schema() as update:
        update.add_column(("lines", "element", "more"), schema_for(pa.schema([("x", STRUCT)])).fields[0].field_type)
        update.add_column(("m", "value", "more"), schema_for(pa.schema([("x", pa.date32())])).fields[0].field_type)
    table = catalog.load_table("lake.t")
    rows = rows_of_manifest(table, 2, ["id", "lines", "m"]).to_pylist()

    def with_more(struct: Any) -> Any:
        return struct and {**struct, "more": None}

    assert rows == [
        {
            "id": row["id"],
            "lines": row["lines"] if row["lines"] is None else [with_more(line) for line in row["lines"]],
            "m": row["m"] if row["m"] is None else [(key, with_more(value)) for key, value in row["m"]],
        }
        for row in as_read(2)
    ]
    [file] = list(replaced(table, 1).rewritten(table))
    assert json.dumps(rows_in([file])[0]["lines"]) == json.dumps(rows[0]["lines"])
