"""The evidence of a table in a lake, which stays short, and the partitions of an Iceberg table."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.errors import SinkRefused
from tidemark.providers.iceberg.evidence import EVIDENCE, KEPT, new_key, outdated
from tidemark.providers.iceberg.partitioning import Term
from tidemark.providers.lake_tables.evidence import CountedMerge, TableEvidence
from tidemark.providers.lake_tables.properties import refuse_other_settings


def test_what_is_written_is_read_back() -> None:
    dice = random.Random(1)
    for size in (0, 1, 2, 50):
        ids = dice.sample(range(1, 1_000), size)
        evidence = TableEvidence(size, {manifest_id: dice.randint(1, 9) for manifest_id in ids})
        assert TableEvidence.of_text(evidence.text()) == evidence
    evidence = TableEvidence()
    for number, manifest_id in enumerate((7, 3, 900, 7), 1):
        counts = CountedMerge(*(dice.randint(0, 5_000) for _ in range(3)))
        evidence = evidence.with_next(number, manifest_id, number, counts)
    assert TableEvidence.of_text(evidence.text().encode()) == evidence
    assert evidence.attempts == {3: 2, 7: 4, 900: 3}


@pytest.mark.parametrize("text", ["", "no base64", "eJyLBgAA"])
def test_a_damaged_text_says_nothing(text: str) -> None:
    assert TableEvidence.of_text(text) is None


def test_a_hundred_thousand_manifests_take_little_room() -> None:
    assert len(TableEvidence(1, dict.fromkeys(range(3, 300_001, 3), 1)).text()) < 10_000
    dice = random.Random(1)
    some_replayed = {number: dice.choice((1, 1, 1, 1, 2)) for number in range(1, 100_001)}
    assert len(TableEvidence(1, some_replayed).text()) < 50_000
    merges = {number: CountedMerge(dice.randint(0, 5_000), dice.randint(0, 100)) for number in range(1, 10_001)}
    assert len(TableEvidence(1, dict.fromkeys(merges, 1), merges).text()) < 60_000


def test_old_files_are_removed_unless_a_snapshot_names_them() -> None:
    keys = [new_key(number) for number in range(1, KEPT + 4)]
    assert keys == sorted(keys)
    summary = SimpleNamespace(additional_properties={EVIDENCE: keys[1]})
    metadata: Any = SimpleNamespace(snapshots=[SimpleNamespace(summary=summary), SimpleNamespace(summary=None)])
    assert outdated(reversed(keys), metadata) == [keys[0], keys[2]]
    assert outdated(keys[:KEPT], metadata) == []


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


def test_other_settings_than_a_table_was_made_with_are_refused_and_one_that_notes_nothing_is_not() -> None:
    refuse_other_settings({}, {"tidemark.key": '["id"]'}, {})
    refuse_other_settings({"tidemark.key": '["id"]'}, {"tidemark.key": '["id"]'}, {})
    for noted in ("[]", '["no"]'):
        with pytest.raises(SinkRefused, match="the table was made with"):
            refuse_other_settings({"tidemark.key": noted}, {"tidemark.key": '["id"]'}, {})
