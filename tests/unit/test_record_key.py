"""``record_key`` in a pipeline file: the columns of the record's key in place of a list of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline, json_schema

Write = Callable[..., Path]
VALUE = "id BIGINT NOT NULL, region STRING, n BIGINT"
BOTH = "id BIGINT NOT NULL, region STRING NOT NULL"
KEY = {"format": "json", "schema": BOTH}


def file_of(decode: Any, **sink: Any) -> dict[str, Any]:
    table = {"connection": "warehouse", "table": "copies", "key": "record_key", **sink}
    return {
        "pipeline": "p",
        "source": {"kafka": {"connection": "k", "topics": ["orders"]}},
        "decode": decode,
        "sinks": [{"postgres": table}],
    }


def loaded(write: Write, decode: Any, **sink: Any) -> Pipeline:
    return load(write(yaml.safe_dump(file_of(decode, **sink))), {})


def of_json(**more: Any) -> dict[str, Any]:
    return {"format": "json", "schema": VALUE, "key": KEY, **more}


def keys(pipeline: Pipeline) -> list[tuple[str, ...] | None]:
    return [sink.record_key for sink in pipeline.sinks]


@pytest.mark.parametrize(
    ("decode", "columns"),
    [
        (of_json(), ("id", "key_region")),
        (of_json(tombstones="record_key"), ("id", "key_region")),
        (of_json(schema="n BIGINT"), ("key_id", "key_region")),
        (of_json(schema="id INT NOT NULL, region STRING NOT NULL"), ("key_id", "region")),
        (of_json(tombstones="record_key", schema=BOTH), ("id", "region")),
    ],
)
def test_a_field_of_the_key_is_the_column_of_the_value_that_surely_has_it_else_its_own(
    write: Write, decode: dict[str, Any], columns: tuple[str, ...]
) -> None:
    pipeline = loaded(write, decode)
    assert keys(pipeline) == [columns]
    if "tombstones" in decode:
        assert pipeline.decode.record_order()["tombstones"] == [*columns]
        assert pipeline.decode.tombstone_fields()[: len(columns)] == columns


def test_a_list_of_columns_is_no_record_key_and_the_two_are_another_fingerprint(write: Write) -> None:
    listed, taken = (loaded(write, of_json(), key=key) for key in (["id", "key_region"], "record_key"))
    assert keys(listed) == [None]
    assert keys(taken) == [("id", "key_region")]
    assert listed.fingerprint() != taken.fingerprint()
    assert taken.fingerprint() == loaded(write, of_json()).fingerprint()


@pytest.mark.parametrize(
    ("decode", "sink", "message"),
    [
        ({"format": "json", "schema": VALUE}, {},
         "sinks[0].postgres.key: is record_key, and no schema says what is in the keys: write decode.key, such as"),
        ({"format": "json", "schema": VALUE, "tombstones": "record_key"}, {"key": ["id"]},
         "decode.tombstones: is record_key, and no schema says what is in the keys"),
        ([{**of_json(), "topics": ["orders"]}], {}, "the entries of decode have keys of their own: list the columns"),
        (of_json(), {"key": "key"}, "must be a list of columns, or record_key"),
        (of_json(tombstones="id"), {}, "must be a list of columns, or record_key"),
        (of_json(schema=BOTH, tombstones=["id"]), {}, "may not have region in its key: decode.tombstones does not"),
        (of_json(key={"format": "string"}), {}, "may not have key in its key: it can be null"),
        (of_json(key={"format": "json", "schema": "id DOUBLE NOT NULL"}), {}, "may not have key_id in its key: it is"),
    ],
)  # fmt: skip
def test_a_key_that_names_no_row_is_told_with_its_place(
    write: Write, decode: Any, sink: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidPipelines) as wrong:
        loaded(write, decode, **sink)
    assert message in str(wrong.value)


def test_editors_know_it() -> None:
    checker = jsonschema.Draft202012Validator(json_schema())
    assert list(checker.iter_errors(file_of(of_json(tombstones="record_key")))) == []
    assert list(checker.iter_errors(file_of(of_json(), key="id"))) != []
    assert list(checker.iter_errors(file_of(of_json(), key=[]))) != []
