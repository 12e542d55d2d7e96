"""The evidence of an Iceberg table: a property that says as much as it must, and stays short."""

import json
import random
import zlib
from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.errors import SinkRefused
from tidemark.providers.iceberg import merge_evidence
from tidemark.providers.iceberg.evidence import Evidence, _decoded, _encoded
from tidemark.providers.iceberg.merge_evidence import merges_of, refuse_other_key, with_merge
from tidemark.providers.iceberg.partitioning import Term
from tidemark.providers.lake_tables.merges import CountedMerge


def test_what_is_written_is_read_back() -> None:
    dice = random.Random(1)
    for size in (0, 1, 2, 50):
        ids = dice.sample(range(1, 1_000), size)
        entries = {manifest_id: (dice.randint(1, 9), number + 1) for number, manifest_id in enumerate(ids)}
        assert _decoded(_encoded(entries, size)) == (entries, size)
    assert _decoded(None) == ({}, None)


def test_what_earlier_versions_have_written_is_read_and_nothing_is_taken_for_complete() -> None:
    """They forgot what was rolled back, so that a manifest that is not named may have rows."""
    written = b64encode(zlib.compress(json.dumps([[1, 1, 1], [1, 2, 1], [1, 3, 1]]).encode())).decode()
    entries, unsure = _decoded(written)
    assert entries == {1: (1, 1), 2: (2, 4), 3: (1, 3)}
    assert unsure is None
    assert not Evidence(4, entries, unsure).never_had(9)
    assert Evidence(4, entries, 7).never_had(8)
    assert not Evidence(4, entries, 7).never_had(7), "its rows may have been forgotten"


def test_a_hundred_thousand_manifests_take_little_room() -> None:
    every_third = {3 * number: (1, number) for number in range(1, 100_001)}
    assert len(_encoded(every_third, 0)) < 10_000
    dice = random.Random(1)
    some_replayed = {number: (dice.choice((1, 1, 1, 1, 2)), number) for number in range(1, 100_001)}
    assert len(_encoded(some_replayed, 0)) < 100_000


def test_what_was_rolled_back_is_not_shown_and_is_never_forgotten() -> None:
    evidence = Evidence(number=2, ever={1: (1, 1), 2: (1, 2), 3: (1, 3)}, unsure=0)
    assert evidence.attempts == {1: 1, 2: 1}
    ever, unsure = _decoded(evidence.with_next(1, 4, 7, 0))
    assert ever == {1: (4, 7), 2: (1, 2), 3: (1, 0)}
    later = Evidence(7, ever, unsure)
    assert later.attempts == {1: 4, 2: 1}, "and a higher position does not bring it back"
    assert not later.never_had(3)
    assert later.never_had(4)


@pytest.mark.parametrize(
    ("text", "column", "transform", "name"),
    [
        ("carrier", "carrier", "identity", "carrier"),
        ("day(_event_time)", "_event_time", "day", "_event_time_day"),
        ("bucket( 16 , carrier )", "carrier", "bucket[16]", "carrier_bucket"),
        ("truncate(4, code)", "code", "truncate[4]", "code_trunc"),
    ],
)
def test_a_partition_is_a_column_or_a_transform_of_one(text: str, column: str, transform: str, name: str) -> None:
    term = Term.parse(text)
    assert term is not None
    assert (term.column, term.transform, term.name) == (column, transform, name)
    assert Term.parse(str(term)) == term


@pytest.mark.parametrize("text", ["", "week(a)", "bucket(a)", "bucket(0, a)", "day(a, b)", "day()", "a; b"])
def test_anything_else_is_none(text: str) -> None:
    assert Term.parse(text) is None


def table_with(properties: dict[str, str]) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(properties=properties))


def test_what_became_of_the_rows_of_each_merge_is_read_back_and_takes_little_room() -> None:
    assert merges_of(table_with({})) == {}
    dice = random.Random(1)
    expected = {}
    for manifest_id in (7, 3, 900, 7):
        expected[manifest_id] = dice.randint(1, 9), CountedMerge(*(dice.randint(0, 5_000) for _ in range(3)))
    properties: dict[str, str] = {}
    for manifest_id, (attempt, counts) in expected.items():
        properties |= with_merge(table_with(properties), ["id"], manifest_id, attempt, counts)
    assert merges_of(table_with(properties)) == expected
    many = {number: (1, CountedMerge(dice.randint(0, 5_000), dice.randint(0, 100))) for number in range(1, 10_001)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_evidence, "merges_of", lambda _: many)
        written = with_merge(table_with({}), ["id"], 10_001, 1, CountedMerge())
    assert len(written[merge_evidence.MERGES]) < 60_000


def test_another_key_is_refused_once_rows_were_published_and_not_before() -> None:
    refuse_other_key(table_with({}), ["id"], {})
    refuse_other_key(table_with({"tidemark.manifests": "x", "tidemark.key": '["id"]'}), ["id"], {})
    refuse_other_key(table_with({"tidemark.manifests": "x"}), [], {})
    for properties, key in (({}, ["id"]), ({"tidemark.key": '["id"]'}, []), ({"tidemark.key": '["id"]'}, ["no"])):
        with pytest.raises(SinkRefused, match="the table has"):
            refuse_other_key(table_with({"tidemark.manifests": "x", **properties}), key, {})
