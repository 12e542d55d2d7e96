"""The members that targets know, for a database that has lost them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tidemark.errors import SinkRefused, Unavailable
from tidemark.lifecycle.members import recorded_topics
from tidemark.paths import RecordName
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import load


def target(name: str, *pipelines: str, error: Exception | None = None) -> Any:
    """The context of a member with this target, which has records of these pipelines or raises the error."""
    records = mock.Mock(side_effect=error, return_value=[RecordName(pipeline, 1, 1) for pipeline in pipelines])
    return SimpleNamespace(sinks=[SimpleNamespace(target=name, ledger=SimpleNamespace(records=records))])


def test_records_of_other_groups_of_retired_members_and_of_topics_that_are_left_out_are_of_no_member(
    tmp_path: Path,
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "{pipeline: shop, each_topic: {shop-out: false}, source: {kafka: {connection: k, topics_regex: 'shop-.*'}},"
        " decode: {format: raw}, sinks: [{files: {root: lake}}]}"
    )
    group = load(file, {})
    assert isinstance(group, Group)
    known = {True: ["shop.shop-retired", "single"], False: ["single"]}
    names: Any = lambda *, retired=False: known[retired]  # noqa: E731 - in the place of a method
    database: Any = SimpleNamespace(pipelines=SimpleNamespace(names=names))
    lake = (
        "shop.shop-b",
        "shop.shop-gone",
        "shop.shop-retired",
        "shop.shop-out",
        "shop.else",
        "other.shop-a",
        "single",
    )
    contexts = [
        target("lake", *lake),
        target("silent", error=Unavailable("it does not answer")),
        target("refused", error=SinkRefused("it is no table")),
        target("table", "shop.shop-a"),
    ]
    assert recorded_topics(group, contexts, database) == ["shop-a", "shop-b", "shop-gone"]
