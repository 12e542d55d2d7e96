"""Pipelines that read what they write."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.pipeline_text import GOOD, changed, problems
from tidemark.cli.main import main
from tidemark.pipeline.loader import load

FILES = "  - files:\n      root: lake\n"


def to_topic(topic: str, name: str = "flights", reads: str = "topics: [flights]", **where: str) -> str:
    """A pipeline that writes to a topic of its source's cluster, or of that in ``where``."""
    at = where or {"connection": "kafka_default"}
    sink = f"  - topic: {{topic: {topic}, " + ", ".join(f"{key}: '{value}'" for key, value in at.items()) + "}\n"
    return changed((FILES, sink), ("pipeline: flights", f"pipeline: {name}"), ("topics: [flights]", reads))


@pytest.mark.parametrize(
    ("topic", "reads", "named"),
    [
        ("flights", "topics: [flights]", "flights"),
        ("clean", "topics_regex: cl.*", "clean"),
        ("clean", "topics: [clean-dead-letters]", "clean-dead-letters"),
        ("clean", "topics: [clean-markers]", "clean-markers"),
    ],
)
def test_a_pipeline_that_reads_its_own_output_is_refused(tmp_path: Path, topic: str, reads: str, named: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(to_topic(topic, reads=reads))
    [problem] = problems(file)
    assert f"sinks[0]: writes to topic {named}, which the source of this pipeline reads" in problem


@pytest.mark.parametrize(("servers", "is_same"), [("b:9092,a:9092", True), ("c:9092", False)])
def test_servers_are_compared_one_by_one_and_another_cluster_may_have_a_topic_of_this_name(
    tmp_path: Path, servers: str, *, is_same: bool
) -> None:
    file = tmp_path / "p.yaml"
    text = to_topic("flights", bootstrap_servers=servers)
    file.write_text(text.replace("    connection: kafka_default\n", "    bootstrap_servers: 'a:9092'\n"))
    if is_same:
        assert "writes to topic flights" in problems(file)[0]
    else:
        assert load(file, {}).name == "flights"


def validated(folder: Path) -> str:
    result = CliRunner().invoke(main, ["--pipelines", str(folder), "validate"])
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stderr.split())


def test_pipelines_that_feed_each_other_are_warned_of_and_a_chain_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(to_topic("clean"))
    (tmp_path / "b.yaml").write_text(to_topic("priced", "prices", "topics: [clean]"))
    (tmp_path / "c.yaml").write_text(GOOD.replace("pipeline: flights", "pipeline: lake"))
    assert "comes back" not in validated(tmp_path)
    (tmp_path / "b.yaml").write_text(to_topic("flights", "prices", "topics: [clean]"))
    warnings = validated(tmp_path)
    assert (
        "the output of flights comes back to it: flights writes clean for prices, prices writes flights for flights"
    ) in warnings
    assert warnings.count("comes back to it") == 2


def test_a_group_in_a_circle_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(to_topic("clean"))
    circle = to_topic("flights", "prices", "topics: [clean]")
    (tmp_path / "b.yaml").write_text(circle.replace("pipeline: prices", "pipeline: prices\neach_topic: true"))
    assert "the output of prices.clean comes back to it" in validated(tmp_path)


def group_of(topics: str, sink: str, *more: str, name: str = "shop", reads: str | None = None) -> str:
    """A group that writes each of its topics to another one; ``more`` are lines below ``each_topic``."""
    text = to_topic(f"'{sink}'", name, reads or f"topics: [{topics}]")
    below = "\neach_topic: true" if not more else "\neach_topic:\n  " + "\n  ".join(more)
    return text.replace(f"pipeline: {name}", f"pipeline: {name}{below}")


def test_a_circle_of_a_member_that_is_not_the_first_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(group_of("orders, items", "{topic}-clean"))
    (tmp_path / "b.yaml").write_text(to_topic("items", "back", "topics: [items-clean]"))
    warnings = validated(tmp_path)
    assert (
        "the output of shop.items comes back to it: shop.items writes items-clean for back, back writes items for "
        "shop.items"
    ) in warnings
    assert warnings.count("comes back to it") == 2  # the second for the pipeline back
    (tmp_path / "b.yaml").write_text(to_topic("items", "back", "topics: [others-clean]"))
    assert "comes back" not in validated(tmp_path)


def test_members_that_differ_are_compared_as_they_are(tmp_path: Path) -> None:
    differs = "items: {sinks: [{topic: {topic: back-to-items}}]}"
    (tmp_path / "a.yaml").write_text(group_of("orders, items", "{topic}-clean", differs))
    (tmp_path / "b.yaml").write_text(to_topic("items", "back", "topics: [items-clean]"))
    assert "comes back" not in validated(tmp_path)
    (tmp_path / "b.yaml").write_text(to_topic("items", "back", "topics: [back-to-items]"))
    assert "shop.items writes back-to-items for back" in validated(tmp_path)


def test_two_groups_by_pattern_in_a_circle_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(group_of("", "there-{name}", reads="topics_regex: here-(?P<name>.*)"))
    back = group_of("", "here-{name}", name="back", reads="topics_regex: there-(?P<name>.*)")
    (tmp_path / "b.yaml").write_text(back)
    assert "the output of shop.here-example comes back to it: shop.here-example writes there-ex" in validated(tmp_path)


def test_a_group_whose_pattern_matches_what_its_members_write_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(group_of("", "{topic}-clean", reads="topics_regex: shop-.*"))
    warnings = validated(tmp_path)
    assert "the output of shop.shop-example comes back to its group: shop.shop-example writes" in warnings
    assert "each plan adds topics, without an end" in warnings
    (tmp_path / "a.yaml").write_text(group_of("", "{topic}-clean", reads="topics_regex: shop-(?P<name>[a-z]+)"))
    assert "comes back" not in validated(tmp_path)
