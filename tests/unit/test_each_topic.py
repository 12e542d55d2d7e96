"""A file with ``each_topic``: the pipelines that it makes of its topics, and what is said about a wrong one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.bootstrap.checkout import CHECKOUT
from tidemark.errors import ConfigurationError, NotFound
from tidemark.pipeline.deployed import Deployed, deployed_named, files_of, known_files
from tidemark.pipeline.each_topic import identifier, split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find, find_file, load, member, values_of_member
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline

GROUP = r"""
pipeline: shop
description: Copies {topic}
each_topic: true
source:
  kafka:
    connection: kafka_default
    topics_regex: "shop\\.(?P<name>.*)"
decode:
  format: json
  schema: id BIGINT NOT NULL, at TIMESTAMP
event_time:
  field: at
sinks:
  - postgres:
      connection: warehouse
      table: "copies.{name}"
      key: [id]
  - files:
      root: lake
"""


def written(path: Path, text: str) -> Path:
    file = path / "shop.yaml"
    file.write_text(text)
    return file


def group_of(path: Path, text: str = GROUP, **changes: Any) -> Group:
    value = {**yaml.safe_load(text), **changes}
    group = load(written(path, yaml.safe_dump(value, sort_keys=False)), {})
    assert isinstance(group, Group)
    return group


def problems_of(path: Path, **changes: Any) -> str:
    with pytest.raises(InvalidPipelines) as refused:
        group_of(path, **changes)
    return str(refused.value)


def test_a_member_is_the_pipeline_of_its_topic(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    orders = member(group, "shop.Orders.v1")
    assert (orders.name, orders.description) == ("shop.shop.Orders.v1", "Copies shop.Orders.v1")
    assert orders.source.topics == ("shop.Orders.v1",)
    assert orders.source.rule is None
    assert [sink.target.rpartition("/")[2] for sink in orders.sinks][0].endswith("copies.orders_v1")
    assert group.source.reads("shop.a")
    assert not group.source.reads("other")
    assert group.connections() == {"kafka_default", "warehouse"}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("shop", ("shop", None)),
        ("shop.orders", ("shop", "orders")),
        ("shop.shop.orders", ("shop", "shop.orders")),
        ("shop._x-1", ("shop", "_x-1")),
    ],
)
def test_the_first_dot_ends_the_name_of_the_group(name: str, parts: tuple[str, str | None]) -> None:
    assert split_name(name) == parts


@pytest.mark.parametrize(
    ("topic", "table"), [("orders", "orders"), ("Dup.b", "dup_b"), ("dup_b", "dup_b"), ("1st-x", "_1st_x")]
)
def test_a_topic_becomes_an_identifier(topic: str, table: str) -> None:
    assert identifier(topic) == table


ORDERS = "shop.orders"
MERGES: dict[str, tuple[Any, Any]] = {
    "nothing differs": ({}, {}),
    "a key below a section": ({"decode": {"schema": "n BIGINT NOT NULL, at TIMESTAMP"}},
                              {"decode": {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP"}}),
    "another format replaces the section": ({"decode": {"format": "string"}}, {"decode": {"format": "string"}}),
    "text is filled in what differs, too": ({"description": "only {name}"}, {"description": "only orders"}),
    "a sink by its name": (
        {"sinks": [{"postgres": {"table": "other.place"}}]},
        {"sinks": [{"postgres": {"connection": "warehouse", "table": "other_place", "key": ["id"]}},
                   {"files": {"root": "lake"}}]},
    ),
    "a sink more": (
        {"sinks": [{"files": {"name": "cold", "root": "cold"}}]},
        {"sinks": [{"postgres": {"connection": "warehouse", "table": "copies_orders", "key": ["id"]}},
                   {"files": {"root": "lake"}}, {"files": {"name": "cold", "root": "cold"}}]},
    ),
    "a setting of the source": ({"source": {"kafka": {"on_data_loss": "accept"}}}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", MERGES)
def test_what_differs_is_merged_key_by_key_and_sinks_by_name(tmp_path: Path, case: str) -> None:
    differs, expected = MERGES[case]
    group = group_of(tmp_path, each_topic={ORDERS: differs})
    values = group.template.filled(ORDERS)
    shown = {key: values[key] for key in expected if key != "sinks"}
    assert shown == {key: value for key, value in expected.items() if key != "sinks"}
    if "sinks" in expected:
        assert [next(iter(sink)) for sink in values["sinks"]] == [next(iter(sink)) for sink in expected["sinks"]]
    if case == "a setting of the source":
        assert values["source"]["kafka"] == {
            "connection": "kafka_default", "topics": [ORDERS], "on_data_loss": "accept"
        }  # fmt: skip


def test_what_is_expected_may_name_the_topic_and_differ_by_topic(tmp_path: Path) -> None:
    expect = ["id > 0", {"name": "ids of {topic}", "check": "'{name}' <> '' AND id < 9", "at_most": 0}]
    differs = {"shop.odd": {"expect": ["id % 2 = 1"]}, "shop.free": {"expect": []}}
    group = group_of(tmp_path, expect=expect, each_topic=differs)
    shown = {
        topic: [(each.name, each.check) for each in member(group, topic).expectations()] for topic in [ORDERS, *differs]
    }
    assert shown == {
        ORDERS: [("id > 0", "id > 0"), ("ids of shop.orders", "'orders' <> '' AND id < 9")],
        "shop.odd": [("id % 2 = 1", "id % 2 = 1")],
        "shop.free": [],
    }


def test_an_empty_difference_keeps_the_topic_and_false_leaves_it_out(tmp_path: Path) -> None:
    group = group_of(tmp_path, each_topic={"shop.x": {}, "shop.y": False})
    assert group.reads("shop.x")
    assert not group.reads("shop.y")
    assert member(group, "shop.x").sinks == member(group_of(tmp_path), "shop.x").sinks


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "one table for all": (
        {"sinks": [{"postgres": {"connection": "warehouse", "table": "copies", "key": ["id"]}}]},
        "sinks[0].postgres: has one target for all topics",
    ),
    "one table for all, beside two differences": (
        {
            "sinks": [{"postgres": {"connection": "warehouse", "table": "copies", "key": ["id"]}}],
            "each_topic": {"shop.a": {}, "shop.b": {}},
        },
        "write {topic} into its name",
    ),
    "no wish": ({"each_topic": "yes"}, "each_topic: must be true, or hold what differs, by topic"),
    "false": ({"each_topic": False}, "each_topic: must be true"),
    "a list of decoders": ({"decode": [{"format": "json", "topics": ["a"]}]}, "decode: must be one mapping"),
    "a trigger": ({"trigger": {"lag": 10}}, "trigger: cannot begin the runs of a group of topics, whose lags differ"),
    "no source": ({"source": None}, "source: must hold one key"),
    "a template that is wrong": ({"on_error": "panic"}, 'on_error: "panic" is not allowed'),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_template_that_no_topic_can_use_is_refused(tmp_path: Path, case: str) -> None:
    changes, message = WRONG[case]
    assert message in problems_of(tmp_path, **changes)


DIFFERENCES: dict[str, tuple[str, str]] = {
    "a key that is shared": ("{schedule: '@hourly'}", "each_topic.shop.bad.schedule: is shared by all topics"),
    "spark": ("{spark: {}}", "each_topic.shop.bad.spark: is shared by all topics"),
    "another connection": (
        "{source: {kafka: {connection: other}}}",
        "each_topic.shop.bad.source.kafka.connection: is shared by all topics",
    ),
    "another broker": ("{source: {kafka: {bootstrap_servers: 'h:1'}}}", "another connection, broker or topic needs"),
    "another kind of source": ("{source: {rabbitmq: {}}}", "each_topic.shop.bad.source: must be of the group's kind"),
    "a key that nobody knows": ("{decode: {shema: x}}", "each_topic.shop.bad.decode.shema: unknown key"),
    "a value that is wrong": ("{sinks: [{files: {max_objects: 0}}]}", "each_topic.shop.bad.sinks[0].files.max_objects"),
    "no mapping": ("[1]", "each_topic.shop.bad: must hold what differs, or be false"),
    "empty": ("null", "each_topic.shop.bad: is empty"),
    "true": ("true", "each_topic.shop.bad: must hold what differs, or be false"),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_a_wrong_difference_stops_its_member_only_and_names_its_line(tmp_path: Path, case: str) -> None:
    differs, message = DIFFERENCES[case]
    text = GROUP.replace("each_topic: true", f"each_topic:\n  shop.good: {{}}\n  shop.bad: {differs}")
    group = load(written(tmp_path, text), {})
    assert isinstance(group, Group)
    assert set(group.wrong) == {"shop.bad"}
    with pytest.raises(InvalidPipelines) as refused:
        member(group, "shop.bad")
    assert message in str(refused.value)
    line = next(number for number, words in enumerate(text.splitlines(), 1) if "shop.bad" in words)
    assert {problem.line for problem in refused.value.problems} == {line}
    assert member(group, "shop.good").name == "shop.shop.good"
    assert member(group, "shop.else").name == "shop.shop.else"


def test_a_difference_for_a_topic_that_is_not_read_is_wrong(tmp_path: Path) -> None:
    group = group_of(tmp_path, each_topic={"other": {}})
    assert "names other, which source.kafka does not read" in str(group.wrong["other"])


def test_a_list_may_have_a_schema_for_each_topic(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
    group = group_of(
        tmp_path, source={"kafka": {"connection": "k", "topics": ["a", "b"]}}, decode={"format": "json"},
        event_time={}, each_topic={"a": {"decode": {"schema": "id BIGINT NOT NULL"}},
                    "b": {"decode": {"schema": "id BIGINT NOT NULL, n BIGINT"}}},
        sinks=[{"postgres": {"connection": "warehouse", "table": "copies.{topic}", "key": ["id"]}}],
    )  # fmt: skip
    assert not group.wrong
    assert [len(member(group, topic).decode.arrow_schema()) for topic in ("a", "b")] == [1, 2]


SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}


@pytest.mark.parametrize("place", ["topic", "name"])
def test_each_topic_may_have_a_schema_file_and_one_without_it_fails_alone(tmp_path: Path, place: str) -> None:
    own = {"format": "json", "schema": f"schemas/{{{place}}}.json"}
    group = {"decode": own, "event_time": {}, "sinks": [{"files": {"root": "lake"}}]}
    (tmp_path / "schemas").mkdir()
    assert f"schemas/{'a.topic'}.json" in problems_of(tmp_path, **group), "there is no file at all yet"
    named = "shop.orders" if place == "topic" else "orders"
    (tmp_path / "schemas" / f"{named}.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "schemas" / "of.nobody.json").write_text("{")
    loaded = group_of(tmp_path, **group)
    assert not loaded.wrong
    assert len(member(loaded, "shop.orders").decode.arrow_schema()) == 2
    missing = "shop.items" if place == "topic" else "items"
    with pytest.raises(InvalidPipelines, match=rf"names a file that cannot be read: .*/schemas/{missing}\.json"):
        member(loaded, "shop.items")


def test_of_topics_in_a_list_the_one_without_its_schema_file_fails_alone(tmp_path: Path) -> None:
    source = {"kafka": {"connection": "k", "topics": ["orders", "items"]}}
    group = {"source": source, "decode": {"format": "json", "schema": "{topic}.json"}, "event_time": {}}
    group["sinks"] = [{"files": {"root": "lake"}}]
    assert "orders.json" in problems_of(tmp_path, **group)
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA))
    loaded = group_of(tmp_path, **group)
    assert set(loaded.wrong) == {"items"}
    assert member(loaded, "orders").name == "shop.orders"


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("shop." + "x" * 250, "gives topic"),
        ("shop.a/b", "has more than letters, digits, ., _ and -"),
    ],
)
def test_a_topic_whose_name_is_none_of_a_pipeline_fails_alone(tmp_path: Path, topic: str, message: str) -> None:
    with pytest.raises(InvalidPipelines) as refused:
        member(group_of(tmp_path), topic)
    assert message in str(refused.value)


class TestNames:
    def test_a_pipeline_has_no_members(self, tmp_path: Path) -> None:
        written(tmp_path, GROUP.replace("each_topic: true\n", "").replace("{name}", "a").replace("{topic}", "it"))
        with pytest.raises(NotFound, match=r"there is no pipeline shop\.typo: shop is a pipeline without each_topic"):
            find(tmp_path, "shop.typo", {})
        with pytest.raises(NotFound):
            deployed_named(tmp_path, "shop.typo", {"TIDEMARK_HOME": str(tmp_path)})

    def test_a_group_is_no_pipeline(self, tmp_path: Path) -> None:
        group_of(tmp_path)
        with pytest.raises(ConfigurationError, match="shop is a group"):
            find(tmp_path, "shop", {})
        assert isinstance(find_file(tmp_path, "shop", {}), Group)

    def test_a_topic_that_is_not_read_is_named_with_the_nearest(self, tmp_path: Path) -> None:
        source = {"kafka": {"connection": "k", "topics": ["orders", "items"]}}
        sinks = [{"files": {"root": "lake"}}]
        group_of(tmp_path, source=source, sinks=sinks, each_topic={"items": False})
        with pytest.raises(NotFound, match='shop reads no topic ordres; did you mean "orders"'):
            find(tmp_path, "shop.ordres", {})
        with pytest.raises(NotFound, match="shop leaves topic items out"):
            find(tmp_path, "shop.items", {})
        assert find(tmp_path, "shop.orders", {}).name == "shop.orders"

    def test_the_files_know_the_members_that_were_planned(self, tmp_path: Path) -> None:
        env = {"TIDEMARK_HOME": str(tmp_path)}
        group_of(tmp_path, each_topic={"shop.bad": {"on_error": "panic"}, "shop.out": False})
        planned = ["shop.shop.a", "shop.shop.bad", "shop.shop.out", "shop.other"]
        known = known_files(tmp_path, planned, env)
        right = known["shop.shop.a"]
        assert isinstance(right, Deployed)
        assert isinstance(right.pipeline, Pipeline)
        assert isinstance(known["shop.shop.bad"], InvalidPipelines)
        assert (known["shop.shop.out"], known["shop.other"], "shop" in known) == (None, None, False)
        alone = known_files(tmp_path, [], env)["shop"]
        assert isinstance(alone, Deployed)
        assert isinstance(alone.pipeline, Group)

    def test_a_member_has_the_file_of_its_group_unless_that_leaves_its_topic_out(self, tmp_path: Path) -> None:
        env = {"TIDEMARK_HOME": str(tmp_path)}
        group_of(tmp_path, each_topic={"shop.out": False})
        assert files_of(tmp_path, "shop.shop.a", env) == [tmp_path / "shop.yaml"]
        assert files_of(tmp_path, "shop.shop.out", env) == []
        assert files_of(tmp_path, "shop", env) == [tmp_path / "shop.yaml"]


def test_what_is_printed_of_a_member_has_names_of_variables_and_is_that_pipeline(tmp_path: Path) -> None:
    text = GROUP.replace("connection: warehouse", "connection: ${WAREHOUSE}")
    env = {"WAREHOUSE": "warehouse_of_prod"}
    group = load(written(tmp_path, text), env)
    assert isinstance(group, Group)
    values = values_of_member(group, ORDERS)
    assert values["sinks"][0]["postgres"]["connection"] == "${WAREHOUSE}"
    assert values["pipeline"] == "shop.shop.orders"
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({**values, "pipeline": "orders"}))
    alone = load(own, env)
    assert isinstance(alone, Pipeline)
    assert alone.model_copy(update={"name": "shop.shop.orders"}) == member(group, ORDERS)


def test_each_file_of_the_page_loads_and_makes_members(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "one-file-many-tables.md").read_text()
    first, difference, *others = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len([first, *others]) == 6, "all topics, raw, Debezium, most are alike, a list, another name"
    topics = {"landing": "web-clicks", "copies": "shop.public.orders", "events": "events.payments", "sales": "refunds",
              "crm": "crm.Kunde", "shop": "shop.orders"}  # fmt: skip
    members = {}
    for text in (first, *others):
        group = group_of(tmp_path, text)
        assert not group.wrong
        members[group.name] = member(group, topics[group.name])
        assert group.reads(topics[group.name])
    assert {*members} == {*topics}
    assert "crm.customer" in members["crm"].sinks[0].target
    assert "sales.refunds" in members["sales"].sinks[0].target
    assert "lake.orders" in members["copies"].sinks[0].target
    assert (members["events"].on_error, members["landing"].decode.format) == ("fail", "raw")
    group = group_of(tmp_path, first, **yaml.safe_load(difference))
    assert not group.wrong
    assert not group.reads("shop.test")
    assert member(group, "shop.orders").on_error == "dead_letter"
