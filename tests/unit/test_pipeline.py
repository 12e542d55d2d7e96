"""Pipeline files: what loads, and every problem's whole line."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit.pipeline_text import GOOD, changed, problems
from tidemark.errors import NotFound
from tidemark.pipeline.loader import find, load, load_each
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline, json_schema
from tidemark.sinks.files.settings import Settings as FilesSettings
from tidemark.sources.kafka.starting_offsets import CommittedOffsets, ExplicitOffsets
from tidemark.sources.settings import Cut, Gaps

REPOSITORY = Path(__file__).parents[2]

Write = Callable[..., Path]


def test_a_short_file_loads_with_the_documented_defaults(write: Write) -> None:
    pipeline = load(write(GOOD), {"TIDEMARK_HOME": "/srv"})
    kafka = pipeline.source
    assert (pipeline.name, pipeline.schedule, pipeline.catchup, pipeline.retries) == ("flights", None, False, 2)
    assert pipeline.retry_delay == timedelta(seconds=10)
    assert (kafka.starting_offsets, kafka.cut, kafka.gaps) == ("earliest", Cut.SCHEDULE, Gaps.NONE)
    assert (kafka.slice.max_records, kafka.slice.max_bytes, kafka.slice.max_slices) == (1000, 2**30, 1000)
    assert pipeline.sinks == (FilesSettings(root="/srv/lake"),)
    assert pipeline.sinks[0].kind == "files"
    assert pipeline.event_time.order() == {
        "field": "at", "header": None, "timezone": "UTC", "unit": None, "pattern": None, "allowed_lateness_s": 0.0,
        "on_invalid": "fail", "min": "1970-01-01T00:00:00+00:00", "max_ahead_s": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["executor.secretKeyRef.AIRFLOW_CONN_A", "driver.secretKeyRef.X", "executor.secrets.s"]
)
def test_a_property_may_name_a_secret_of_kubernetes_but_not_hold_one(write: Write, name: str) -> None:
    file = "pipeline: flights\nspark: {conf: {%s: 'tidemark:KEY'}}"
    key = f"spark.kubernetes.{name}"
    loaded = load(write(changed(("pipeline: flights", file % key))), {})
    assert loaded.spark.conf == {key: "tidemark:KEY"}
    held = changed(("pipeline: flights", file % "spark.kubernetes.secretKeyRef.a"))
    assert "is not allowed: properties are seen in process lists" in problems(write(held))[0]


def test_the_order_parts_are_plain_json(write: Write) -> None:
    pipeline = load(write(changed(("  field: at", "  field: at\n  allowed_lateness: PT1H30M\n  max_ahead: 0s"))), {})
    parts = [pipeline.decode.order(), pipeline.event_time.order(), pipeline.sinks[0].order()]
    assert json.loads(json.dumps(parts)) == parts
    assert parts[1]["allowed_lateness_s"] == 5400
    assert parts[2] == {
        "layout": "raw/{stream}/%Y/%m/%d/%H",
        "format": "parquet",
        "compression": "zstd",
        "max_objects": 10_000,
        "max_file_rows": 5_000_000,
        "max_file_bytes": 134_217_728,
        "sort_by": [],
    }


def test_variables_come_from_the_environment_or_their_default(write: Write) -> None:
    text = changed(
        ("pipeline: flights", "pipeline: ${NAME}\ncatchup: ${CATCHUP:-true}"),
        ("max_records: 1000", "max_records: ${MOST:-5_000}"),
        ("root: lake", "root: /lake\n      layout: ${LAYOUT:-raw/{stream}/%Y}"),
    )
    pipeline = load(write(text), {"NAME": "from-env", "CATCHUP": "false", "LAYOUT": ""})
    assert (pipeline.name, pipeline.catchup, pipeline.source.slice.max_records) == ("from-env", False, 5000)
    assert pipeline.sinks[0].layout == "raw/{stream}/%Y"


SIZES = [
    *(("1", 1), ("512MiB", 512 * 2**20), ("2 GB", 2 * 10**9), ("10kB", 10_000), ("1_000", 1000), ("1_024KiB", 2**20)),
    *(
        ("1125899906842kB", 1_125_899_906_842_000),
        ("1048575GiB", 2**50 - 2**30),
        ("1_0_2_4GiB", 2**40),
        ("07MB", 7 * 10**6),
    ),
]


@pytest.mark.parametrize(("text", "expected"), SIZES)
def test_a_size_is_in_bytes(write: Write, text: str, expected: int) -> None:
    pipeline = load(write(changed(("max_records: 1000", f"max_bytes: {text}"))), {})
    assert pipeline.source.slice.max_bytes == expected


@pytest.mark.parametrize(
    "text",
    [
        *(text for text, _ in SIZES if "B" in text),
        *("1_MB", "1__0MB", "_1MB", "1.5GiB", "1 gig", "512", "512mib", "5 kbit", "1  MB", " 1MB", "MB", "", "1e3kB"),
        "\u0663MB",
    ],
)
def test_editors_know_how_a_size_may_be_written(write: Write, text: str) -> None:
    pipeline = yaml.safe_load(GOOD)
    pipeline["source"]["kafka"]["slice"] = {"max_bytes": text}
    valid = text in dict(SIZES)
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(pipeline) is valid
    messages = problems(write(json.dumps(pipeline))) if not valid else load(write(json.dumps(pipeline)), {}) and []
    assert [message.split("max_bytes: ")[1][:4] for message in messages] == ([] if valid else ["must"])


@pytest.mark.parametrize("size", [0, 2**50 + 1, True, 1.5])
def test_editors_know_how_large_a_size_may_be(write: Write, size: object) -> None:
    pipeline = yaml.safe_load(GOOD)
    pipeline["source"]["kafka"]["slice"] = {"max_bytes": size}
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(pipeline)
    assert len(problems(write(json.dumps(pipeline)))) == 1


DURATIONS = [("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172_800), ("PT1H30M", 5400), ("P1DT1S", 86_401), ("0s", 0)]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_a_duration_is_exact(write: Write, text: str, seconds: int) -> None:
    pipeline = load(write(changed(("pipeline: flights", f"pipeline: flights\nretry_delay: {text}"))), {})
    assert pipeline.retry_delay.total_seconds() == seconds


@pytest.mark.parametrize("text", ["P", "PT", "P1M", "P1Y", "1.5h", "-1h", "1h30m", "4000d", "1 h", "h"])
def test_a_duration_of_no_fixed_length_is_refused(write: Write, text: str) -> None:
    messages = problems(write(changed(("pipeline: flights", f"pipeline: flights\nretry_delay: {text}"))))
    assert len(messages) == 1
    assert messages[0].startswith("p.yaml:2: retry_delay: must ")


@pytest.mark.parametrize(
    "text",
    [
        *("@daily", "@quarterly", "@midnight", "*/15 * * * *", "0 6 * * mon-fri", "0 0 29 feb *", "5,35 1-3 1 */2 7"),
        *("0 0 31 2 1", "0 0 L * *", "0 0 * * 5#3", "0 22-2 * * *", "0 0 ? * *", "0 0 15w * *", "0 0 * * sat-sun"),
        *("* * * * * 30", "0 0 29 2 * 0 2024"),
    ],
)
def test_a_schedule_that_can_be_due_loads(write: Write, text: str) -> None:
    assert load(write(changed(("pipeline: flights", f"pipeline: flights\nschedule: '{text}'"))), {}).schedule == text


@pytest.mark.parametrize(
    "text",
    [
        *("* * * *", "*/0 * * * *", "a * * * *", "0 0 30 2 *", "1, * * * *", "0 0 29 2 * 0 2023", "H * * * *", "@once"),
        *("* * * * * * * *", "* * * * * 60", "@", "@continuous", "@Quarterly", "0 0 * * 5#6", "? * * * *"),
    ],
)
def test_a_schedule_that_cannot_be_due_is_refused(write: Write, text: str) -> None:
    messages = problems(write(changed(("pipeline: flights", f"pipeline: flights\nschedule: '{text}'"))))
    assert len(messages) == 1
    assert messages[0].startswith("p.yaml:2: schedule: ")


def test_a_starting_time_is_kept_in_utc(write: Write) -> None:
    text = changed(("    topics:", "    starting_offsets: 2024-01-31T01:00:00+01:00\n    topics:"))
    assert load(write(text), {}).source.starting_offsets == datetime(2024, 1, 31, tzinfo=UTC)


def test_a_starting_point_is_a_group_or_an_offset_for_each_partition(write: Write) -> None:
    text = changed(("    topics:", "    starting_offsets: {group: connect-flights}\n    topics:"))
    assert load(write(text), {}).source.starting_offsets == CommittedOffsets("connect-flights")
    text = changed(("    topics:", "    starting_offsets: {offsets: {flights: {0: 1_200, 10: 0}}}\n    topics:"))
    assert load(write(text), {}).source.starting_offsets == ExplicitOffsets({"flights": {0: 1200, 10: 0}})


@pytest.mark.parametrize(
    ("start", "valid"),
    [
        ("latest", True),
        ({"group": "connect-flights"}, True),
        ({"offsets": {"flights": {"0": 1200}}}, True),
        ({"group": "a", "offsets": {}}, False),
        ({"groop": "a"}, False),
        ({}, False),
        ({"offsets": {"flights": {"00": 1}}}, False),
        ({"offsets": {"flights": {"0": -1}}}, False),
        ({"offsets": {"flights": 7}}, False),
    ],
)
def test_editors_know_what_a_starting_point_may_be(write: Write, start: Any, valid: bool) -> None:
    pipeline = yaml.safe_load(GOOD)
    pipeline["source"]["kafka"]["starting_offsets"] = start
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(pipeline) is valid
    path = write(json.dumps(pipeline))
    if valid:
        load(path, {})
    else:
        assert problems(path)


def test_client_options_reach_the_client_under_their_own_names(write: Write) -> None:
    text = changed(("    topics:", "    options: {fetch.max.bytes: 50MiB, request.timeout.ms: 5000}\n    topics:"))
    assert load(write(text), {}).source.options == {"fetch.max.bytes": "52428800", "request.timeout.ms": "5000"}


def test_a_schema_file_is_read_into_the_pipeline(write: Write) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    write(json.dumps(schema), "records.json")
    path = write(
        changed(("  schema: id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN", "  schema: records.json"))
    )
    assert load(path, {}).decode.order() == {"format": "json", "schema": schema, "max_list_bytes": 64 * 2**20}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("missing.json", "names a file that cannot be read: {folder}/missing.json: No such file or directory"),
        ("broken.json", "names a file that is not JSON: {folder}/broken.json: "),
        ("id BIGNT", "does not parse: "),
        (
            "5",
            "must be the name of a JSON Schema file, a JSON Schema, or columns such as id BIGINT, name STRING ",
        ),
        ("{type: object, properties: {a: {type: strin}}}", "does not parse: "),
    ],
)
def test_a_schema_that_cannot_be_used_is_named(write: Write, tmp_path: Path, schema: str, expected: str) -> None:
    write("{", "broken.json")
    path = write(changed(("id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN", schema)))
    messages = problems(path)
    assert len(messages) == 1
    assert messages[0].startswith(f"p.yaml:10: decode.schema: {expected.format(folder=tmp_path)}")


def test_raw_records_have_only_the_source_timestamp(write: Write) -> None:
    raw = ("  format: json\n  schema: id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN\n", "  format: raw\n")
    assert problems(write(changed(raw))) == [
        "p.yaml:11: event_time.field: needs decoded fields, and raw records have none; write from: source_timestamp"
    ]
    pipeline = load(write(changed(raw, ("  field: at", "  from: source_timestamp"))), {})
    assert pipeline.decode.order() == {"format": "raw"}
    assert pipeline.event_time.order()["field"] is None


@pytest.mark.parametrize(
    ("on_error", "on_invalid", "expected"),
    [("dead_letter", "", "dead_letter"), ("dead_letter", "fail", "fail"), ("fail", "", "fail"), ("", "", "fail")],
)
def test_a_record_without_a_time_shares_the_fate_of_an_undecodable_one(
    write: Write, on_error: str, on_invalid: str, expected: str
) -> None:
    first = f"pipeline: flights\non_error: {on_error}" if on_error else "pipeline: flights"
    time = f"  field: at\n  on_invalid: {on_invalid}" if on_invalid else "  field: at"
    pipeline = load(write(changed(("pipeline: flights", first), ("  field: at", time))), {})
    assert pipeline.event_time.on_invalid == expected


def test_files_of_a_folder_load_by_name_and_two_of_one_name_are_an_error(write: Write, tmp_path: Path) -> None:
    write(GOOD, "b.yaml")
    write(changed(("pipeline: flights", "pipeline: other")), "a.yml")
    write("not ours", ".hidden.yaml")
    write("{}", "records.json")
    loaded = [each for _, each in load_each(tmp_path, {})]
    assert [each.name for each in loaded if isinstance(each, Pipeline)] == ["other", "flights"]
    assert find(tmp_path, "flights", {}).name == "flights"
    write(GOOD, "c.yaml")
    with pytest.raises(InvalidPipelines) as caught:
        find(tmp_path, "flights", {})
    for wrong in (caught.value, dict(load_each(tmp_path, {}))[tmp_path / "c.yaml"]):
        assert isinstance(wrong, InvalidPipelines)
        assert [str(each) for each in wrong.problems] == [
            f'{tmp_path}/c.yaml:1: pipeline: is "flights", as in {tmp_path}/b.yaml; no two pipelines share a name'
        ]
    assert find(tmp_path, "other", {}).name == "other"


def test_an_unknown_pipeline_is_answered_with_the_nearest_and_all(write: Write, tmp_path: Path) -> None:
    write(GOOD, "a.yaml")
    with pytest.raises(NotFound) as caught:
        find(tmp_path, "flight", {})
    assert caught.value.what == f'there is no pipeline flight in {tmp_path}; did you mean "flights"? it has: flights'


def test_a_broken_file_does_not_hide_the_others_but_is_not_kept_secret(write: Write, tmp_path: Path) -> None:
    write(GOOD, "a.yaml")
    write("pipeline: broken\n", "b.yaml")
    assert find(tmp_path, "flights", {}).name == "flights"
    with pytest.raises(InvalidPipelines):
        find(tmp_path, "broken", {})
    good, broken = load_each(tmp_path, {})
    assert (good[0].name, getattr(good[1], "name", "")) == ("a.yaml", "flights")
    assert isinstance(broken[1], InvalidPipelines)
    assert {problem.file for problem in broken[1].problems} == {str(tmp_path / "b.yaml")}


FINGERPRINT = load(REPOSITORY / "include/pipelines/flights.yaml", {}).fingerprint()


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("root: lake", "root: elsewhere"), True),
        (("root: lake", "root: s3://lake/raw\n      connection: aws\n      s3: {region: eu-north-1}"), True),
        (("root: lake", "root: lake\n      max_objects: 50"), True),
        (("pipeline: flights", "pipeline: flights\nretries: 5\nschedule: '@daily'"), True),
        (("  field: at", "  field: at\n  timezone: UTC"), True),
        (("  field: at", "  field: at\n  timezone: Asia/Tokyo"), False),
        (("gate STRING", "gate INT"), False),
        (("pipeline: flights", "pipeline: flights\non_error: dead_letter"), False),
        (("root: lake", "root: lake\n      layout: '{stream}/%Y'"), False),
        (("root: lake", "root: lake\n      compression: snappy"), False),
    ],
)
def test_the_fingerprint_changes_exactly_when_the_output_would(
    write: Write, change: tuple[str, str], same: bool
) -> None:
    assert (load(write(changed(change)), {}).fingerprint() == load(write(GOOD), {}).fingerprint()) is same


def test_the_fingerprint_is_the_same_in_every_version_until_output_changes() -> None:
    assert FINGERPRINT == "6af5ccc95f27ba293f3caf262eca0418475b8e1bce0c127bb1f3882a9077f660"


@pytest.mark.parametrize(
    ("lake", "other_lake", "meet"),
    [
        ("s3://lake/raw", "s3://lake/raw", True),
        ("s3://lake", "s3://lake/raw", True),
        ("s3://lake/raw/", "s3://lake/raw/b", True),
        ("s3://lake/raw", "s3://lake/rawer", False),
        ("s3://lake/raw", "s3://pond/raw", False),
        ("s3://lake/raw", "s3:/lake/raw", False),
    ],
)
def test_two_lakes_in_one_bucket_are_apart_unless_one_lies_in_the_other(lake: str, other_lake: str, meet: bool) -> None:
    first, second = (FilesSettings.model_validate({"root": root}) for root in (lake, other_lake))
    assert (first.meets(second), second.meets(first)) == (meet, meet)
