"""What a pipeline file may say of a Delta table, what its client gets, and what its files and evidence say."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pydantic import ValidationError

from tidemark.config.base import LoadContext
from tidemark.connections.lookup import Secret
from tidemark.decoders.json.settings import Settings as Json
from tidemark.errors import ConfigurationError, SinkRefused
from tidemark.providers.delta.buckets import buckets_of
from tidemark.providers.delta.columns import (
    arrow_columns,
    missing_columns,
    refuse_misfits,
    refuse_other_partitioning,
    schema_for,
)
from tidemark.providers.delta.evidence import read_evidence, write_evidence
from tidemark.providers.delta.files import _statistics
from tidemark.providers.delta.refusals import refuse_unfit
from tidemark.providers.delta.settings import Settings
from tidemark.providers.lake_tables.evidence import CountedMerge, TableEvidence
from tidemark.providers.lake_tables.evolution import required_paths
from tidemark.storage.s3.storage_options import storage_options

CANARY = "canary-of-a-bucket"


def settings(**given: Any) -> Settings:
    return Settings.model_validate(given, context=LoadContext(Path("/files"), Path("/lakes")))


def test_a_relative_location_lies_below_the_home_and_a_bucket_is_one() -> None:
    assert settings(location="prices").location == "/lakes/prices"
    assert settings(location="prices").folders() == {"/lakes/prices"}
    bucket = settings(location="s3://tables/prices", connection="aws")
    assert (bucket.target, bucket.folders()) == ("Delta table s3://tables/prices", set())
    assert bucket.connections() == {"aws"}
    assert bucket.meets_target("s3://tables")
    assert bucket.meets_target(bucket.target)
    assert not bucket.meets_target("s3://tables/orders")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Field required"),
        ({"location": "prices", "connection": "aws"}, "is for a location such as s3://bucket/prefix"),
        ({"location": "prices", "s3": {"region": "eu"}}, "is for a location such as s3://bucket/prefix"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a BIGINT, B STRING", None),
        ("`a b` BIGINT", "may not have a column 'a b': a name with a space or one of ,;{}()= needs column mapping"),
        (
            "s ARRAY<STRUCT<`a=b`: BIGINT>>",
            "may not have a column 's.element.a=b': a name with a space or one of ,;{}()= needs column mapping",
        ),
        (
            "`a.b` BIGINT, a STRUCT<c: INT>",
            "may not have a column a.b: a.b could be the path of a field inside a",
        ),
        ("`a.b` BIGINT, c STRUCT<b: INT>", None),
    ],
)
def test_columns_that_delta_cannot_have_are_refused(schema: str, message: str | None) -> None:
    rows = Json.model_validate({"format": "json", "schema": schema}).rows()
    assert rows is not None
    assert settings(location="prices").problem_with_rows(rows, rows.arrow_schema()) == message


def test_an_order_names_a_connection_and_holds_no_key_of_it() -> None:
    connection = {"login": "id", "password": CANARY, "extra": {"region_name": "eu-central-1"}}
    bucket = settings(location="s3://tables/prices", connection="aws", s3={"server_side_encryption": "AES256"})
    options = storage_options("s3://bucket/table", bucket.store_settings(), lambda _: connection)
    assert options["aws_secret_access_key"] == Secret(CANARY)
    assert CANARY not in json.dumps(bucket.order()) + repr(options)
    assert {key: options[key] for key in ("aws_region", "conditional_put", "aws_s3_allow_unsafe_rename")} == {
        "aws_region": "eu-central-1", "conditional_put": "etag", "aws_s3_allow_unsafe_rename": "false",
    }  # fmt: skip
    assert options["aws_server_side_encryption"] == "AES256"
    assert options["aws_virtual_hosted_style_request"] == "true"


def test_another_store_is_asked_by_path_and_without_tls_only_when_its_address_says_so() -> None:
    connection = {"login": "id", "password": CANARY, "extra": {"endpoint_url": "http://minio:9000"}}
    options = storage_options("s3://bucket/table", {"connection": "aws"}, lambda _: connection)
    assert options["aws_endpoint_url"] == "http://minio:9000"
    assert options["aws_allow_http"] == "true"
    assert options["aws_virtual_hosted_style_request"] == "false"
    with pytest.raises(ConfigurationError, match="does not exist"):
        storage_options("s3://bucket/table", {"connection": "aws"}, lambda _: None)


@pytest.mark.parametrize(
    "attempts", [{}, {1: 1}, {3: 2, 4: 1, 900_000: 17}, dict.fromkeys(range(1, 50001), 1)], ids=len
)
def test_evidence_survives_its_file_which_has_no_rows(attempts: dict[int, int]) -> None:
    file = BytesIO()
    write_evidence(TableEvidence(7, attempts), file, pa.schema([("n", pa.int64())]))
    assert read_evidence(file) == TableEvidence(7, attempts)
    assert pq.read_table(file).num_rows == 0
    assert len(file.getvalue()) < 3_000, "less than a byte a manifest"


def test_evidence_of_merges_survives_its_file_too() -> None:
    file = BytesIO()
    evidence = TableEvidence(9).with_next(10, 4, 1, CountedMerge(3, 2, 1)).with_next(11, 2, 5, CountedMerge())
    write_evidence(evidence, file, pa.schema([("k", pa.int64())]))
    assert read_evidence(file) == evidence
    assert (evidence.attempts, evidence.merges[4].stale) == ({4: 1, 2: 5}, 2)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.date32(), pa.decimal128(12, 2)], ids=str)
def test_the_bucket_of_a_key_depends_on_its_value_alone(kind: pa.DataType) -> None:
    numbers = pa.array(range(1_000), pa.int32())
    columns = pa.schema([("k", kind), ("n", pa.int64())])
    rows = pa.RecordBatch.from_arrays([numbers.cast(kind), numbers.cast(pa.int64())], schema=columns)
    buckets = buckets_of(rows, columns, ["k"], 8)
    assert pc.value_counts(buckets).field("values").sort() == pa.array(range(8), pa.int32())
    backwards = rows.take(pa.array(range(999, -1, -1)))
    assert buckets_of(backwards, columns, ["k"], 8).to_pylist() == buckets.to_pylist()[::-1]
    smaller = rows.set_column(1, "n", numbers)
    assert buckets_of(smaller, columns, ["k", "n"], 8) == buckets_of(rows, columns, ["k", "n"], 8)
    assert buckets_of(rows, columns, ["_log_generation"], 8).to_pylist() == [0] * 1_000


def test_the_bucket_of_a_key_is_the_same_in_every_release() -> None:
    """Another one would leave the older versions of a key where nobody looks for them."""
    columns = pa.schema([("carrier", pa.string()), ("n", pa.int64())])
    rows = pa.RecordBatch.from_pydict({"carrier": ["UA", "B6", "", "é"], "n": [1, -1, 0, 2**40]}, columns)
    assert buckets_of(rows, columns, ["carrier", "n"], 4_096).to_pylist() == [1665, 985, 2186, 1954]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"buckets": 16}, "needs key: the columns that name a row"),
        ({"key": ["k"], "buckets": 12}, "must be a power of 2, such as 16 or 64"),
        ({"order_by": "n"}, "needs key: the columns that name a row"),
    ],
)
def test_buckets_and_order_are_of_a_key(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(location="prices", **given)
    assert message in str(refused.value)


def test_a_file_of_others_is_no_evidence() -> None:
    file = BytesIO()
    pq.write_table(pa.table({"n": [1]}), file)
    assert read_evidence(file) is None
    assert read_evidence(BytesIO(b"no parquet")) is None


@pytest.mark.parametrize("first", ["a.b", "a"])
def test_statistics_of_a_column_are_its_own_also_beside_a_struct_with_such_a_path(first: str) -> None:
    columns = {"a.b": pa.array([7, 8]), "a": pa.array([{"b": 1}, {"b": None}]), "l": pa.array([[1], None]), "z": [5, 6]}
    file = BytesIO()
    pq.write_table(pa.table(dict(sorted(columns.items(), key=lambda item: item[0] != first))), file)
    told = _statistics(pq.read_metadata(file))
    assert told["minValues"] == {"a.b": 7, "z": 5}
    assert told["maxValues"] == {"a.b": 8, "z": 6}
    assert told["nullCount"] == {"a.b": 0, "z": 0}


def test_statistics_bound_what_a_reader_may_skip_by_and_say_nothing_of_the_rest() -> None:
    at = datetime(2024, 3, 1, 12, 0, 0, 1500, tzinfo=UTC)
    rows = pa.table(
        {
            "n": pa.array([3, None, -1], pa.int64()), "day": pa.array([date(2024, 3, 1)] * 3),
            "at": pa.array([at] * 3, pa.timestamp("us", "UTC")), "x": [1.0, float("nan"), None],
            "text": ["a", "b", "c"], "nothing": pa.nulls(3, pa.int64()), "many": [[1], [], None],
        }
    )  # fmt: skip
    file = BytesIO()
    pq.write_table(rows, file)
    told = _statistics(pq.read_metadata(file))
    assert told["numRecords"] == 3
    assert told["minValues"] == {"n": -1, "day": "2024-03-01", "at": "2024-03-01T12:00:00.001Z"}
    assert told["maxValues"] == {"n": 3, "day": "2024-03-01", "at": "2024-03-01T12:00:00.002Z"}
    assert told["nullCount"] == {"n": 1, "day": 0, "at": 0, "x": 1, "text": 0, "nothing": 3}


def made(folder: Path, columns: Mapping[str, pa.DataType], **more: Any) -> DeltaTable:
    fields = [pa.field(name, kind) for name, kind in {**columns, "_manifest_id": pa.int64()}.items()]
    return DeltaTable.create(folder, schema_for(pa.schema(fields), {}), partition_by=["_manifest_id"], **more)


@pytest.mark.parametrize(
    ("actual", "needed", "fits"),
    [
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.int64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), True),
        (pa.decimal128(12, 3), pa.decimal128(10, 2), False),
        (pa.int64(), pa.uint32(), True),
        (pa.list_(pa.struct([("a", pa.string())])), pa.list_(pa.struct([("a", pa.string())])), True),
        (pa.list_(pa.struct([("a", pa.string())])), pa.list_(pa.struct([("a", pa.int64())])), False),
        (pa.string(), pa.binary(), False),
    ],
    ids=str,
)
def test_a_column_holds_values_of_its_type_or_a_smaller_one(
    tmp_path: Path, actual: pa.DataType, needed: pa.DataType, fits: bool
) -> None:
    table = made(tmp_path, {"x": actual})
    wanted = schema_for(pa.schema([("x", needed), ("y", pa.int64())]), {})
    assert [field.name for field in missing_columns(table, wanted)] == ["y"]
    if fits:
        refuse_misfits(table, wanted, {})
    else:
        with pytest.raises(SinkRefused, match=r"column x(\.element\.a)? of the table is"):
            refuse_misfits(table, wanted, {})


def test_a_type_that_delta_has_not_and_another_partitioning_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match="a Delta table cannot hold a column of the rows"):
        schema_for(pa.schema([("x", pa.time64("us"))]), {})
    table = made(tmp_path, {"x": pa.int64()})
    with pytest.raises(SinkRefused, match="the table is partitioned by _manifest_id, and the sink needs _bucket"):
        refuse_other_partitioning(table, "_bucket", {})


@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [
        ("delta.appendOnly", "true", True),
        ("delta.appendOnly", "false", False),
        ("delta.enableChangeDataFeed", "true", True),
        ("delta.setTransactionRetentionDuration", "interval 30 days", True),
        ("delta.logRetentionDuration", "interval 30 days", False),
        ("delta.checkpointInterval", "10", False),
    ],
)
def test_only_properties_that_a_commit_would_not_keep_are_refused(
    tmp_path: Path, name: str, value: str, is_refused: bool
) -> None:
    table = made(tmp_path, {"x": pa.timestamp("us")}, configuration={name: value})
    if is_refused:
        with pytest.raises(SinkRefused, match=f"{name} = {value}") as refused:
            refuse_unfit(table, {})
        assert f"UNSET TBLPROPERTIES ('{name}')" in refused.value.next_step
    else:
        refuse_unfit(table, {})


@pytest.mark.parametrize(
    ("protocol", "metadata", "message"),
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, {}, "was upgraded to protocol versions reader 2 and writer 5"),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}, {},
         "has the features rowTracking, which Tidemark does not support"),
        ({"minReaderVersion": 1, "minWriterVersion": 2}, {"metadata": {"delta.invariants": "{}"}},
         "column n of the table has the rule delta.invariants"),
    ],
    ids=["versions", "feature", "invariant"],
)  # fmt: skip
def test_an_upgraded_table_and_rules_of_columns_are_refused(
    tmp_path: Path, protocol: dict[str, Any], metadata: dict[str, Any], message: str
) -> None:
    """The log as another writer leaves it: deltalake itself would refuse to make some of these."""
    made(tmp_path, {"n": pa.int64()})
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = protocol
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0] |= metadata
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(SinkRefused, match=message):
        refuse_unfit(DeltaTable(tmp_path), {})


def test_a_column_that_may_not_be_null_is_taken_since_rows_are_checked_before_they_are_staged(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("x", pa.int64())])
    table = DeltaTable.create(str(tmp_path), schema=schema)
    refuse_unfit(table, {})
    assert list(required_paths(arrow_columns(table))) == [("n",)]
