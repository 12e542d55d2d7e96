"""What every kind of source promises to the process that plans; a new kind must bring an example."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.services.broker import Broker
from sandbox.services.rabbitmq import RabbitMQ
from tests.source_examples import (
    SECRET,
    Example,
    KafkaExample,
    ModelExample,
    Rabbit4Example,
    RabbitExample,
    ToyExample,
    WithTransactions,
)
from tidemark.errors import DataLost, NotFound, TopicChanged, Unavailable
from tidemark.kinds import SOURCES
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, Record
from tidemark.sources.base import Source

EXAMPLES: dict[str, type[Example]] = {
    "kafka": KafkaExample,
    "rabbitmq": RabbitExample,
    "rabbitmq 4": Rabbit4Example,
    "model broker": ModelExample,
    "toy": ToyExample,
}
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def test_every_registered_kind_of_source_has_an_example() -> None:
    assert set(SOURCES) <= set(EXAMPLES)


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.exhaustive if name == "rabbitmq 4" else ()) for name in EXAMPLES]
)
def example(
    request: pytest.FixtureRequest,
    broker: Broker,
    rabbits: Callable[[int], RabbitMQ],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Example]:
    monkeypatch.setitem(SOURCES, "toy", "tests.toys.toy_source")
    made = EXAMPLES[request.param](broker, tmp_path, rabbits)
    yield made
    made.remove()


# Of those whose producers choose timestamps and open transactions, and whose retention takes single records; what a
# source without that does instead, its own tests say (test_rabbitmq_source.py).
WITH_TRANSACTIONS = pytest.mark.parametrize(
    "example", [name for name, kind in EXAMPLES.items() if issubclass(kind, WithTransactions)], indirect=True
)


@pytest.fixture
def topic(example: Example) -> str:
    """A topic with ten records in its first partition, stamped a minute apart from noon on where producers may choose;
    and none in a second one, where it may have two."""
    name = f"{example.prefix}-orders"
    example.create(name, example.partitions)
    example.send(name, *minutes(*range(10)))
    return name


@pytest.fixture
def source(example: Example, topic: str) -> Source:
    return example.source(topic)


def minutes(*past: int) -> list[datetime]:
    """Moments after noon."""
    return [NOON + timedelta(minutes=each) for each in past]


def places(source: Source, topic: str) -> list[TopicPartition]:
    partitions, missing = source.partitions([topic])
    assert missing == []
    return partitions


def read(source: Source, covered: Range) -> list[tuple[int, datetime]]:
    """Offset and timestamp of what the source gives for a range."""
    return [(record.offset, stamp(record)) for record in source.records(covered)]


def stamp(record: Record) -> datetime:
    return datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)


def test_partitions_have_the_id_of_their_topic_and_what_is_missing_is_named(
    example: Example, source: Source, topic: str
) -> None:
    other = f"{example.prefix}-more"
    example.create(other, 1)
    example.send(other, NOON)
    partitions, missing = example.source(topic, other).partitions([topic, f"{topic}x", other])
    assert partitions == sorted(partitions)
    of_topic = [(topic, partition) for partition in range(example.partitions)]
    assert [(partition.topic, partition.partition) for partition in partitions] == [(other, 0), *of_topic]
    ids = {partition.topic: partition.topic_id for partition in partitions}
    assert all(ids.values())
    assert ids[topic] != ids[other]
    assert missing == [f"{topic}x"]
    assert source.partitions([]) == ([], [])


def test_all_topics_are_listed_and_a_missing_one_is_named_with_the_nearest(
    example: Example, source: Source, topic: str
) -> None:
    listed = source.topics()  # other tests create and delete topics meanwhile
    assert topic in listed
    assert listed == sorted(listed)
    error = source.missing_topic(f"{topic}x")
    assert isinstance(error, NotFound)
    assert error.what.startswith(f"{example.noun} {topic}x does not exist; did you mean ")
    assert f"source.{source.settings.kind}.{example.key}" in error.next_step


@WITH_TRANSACTIONS
def test_a_pattern_selects_whole_names_also_of_topics_that_come_later(
    example: WithTransactions, source: Source, topic: str
) -> None:
    del source
    odd = [f"_{topic}", f"..{topic}x", f"{topic}..", f"{topic}{'x' * (249 - len(topic))}"]
    for name in (*odd, f"__{topic}", f"{example.prefix}-more"):
        example.create(name, 1)
    pattern = rf"_*\.*{topic}[x.]*"
    matching = example.matching(pattern, f"{example.prefix}-more")
    assert sorted(matching.selected()) == sorted([topic, *odd, f"{example.prefix}-more"])
    assert example.matching(topic[:-1] + ".").selected() == [topic]
    assert example.matching(f"{topic}-later", topic).selected() == [topic]
    example.create(f"{topic}-later", 1)
    assert example.matching(f"{topic}-later", topic).selected() == [topic, f"{topic}-later"]
    assert example.matching(f"{topic}-later").selected("gone") == ["gone", f"{topic}-later"]
    with pytest.raises(NotFound) as caught:
        example.matching(f"{topic}-lat.r.").selected()
    assert caught.value.what.startswith(f"no topic matches {topic}-lat.r.; did you mean ")
    assert "topics_regex" in caught.value.next_step


@WITH_TRANSACTIONS
def test_a_topic_of_the_broker_itself_is_never_selected_by_a_pattern(example: WithTransactions) -> None:
    example.create("__consumer_offsets_of_a_test", 1)
    example.create(f"{example.prefix}-a", 1)
    selected = example.matching(".*").selected()
    assert f"{example.prefix}-a" in selected
    assert [name for name in selected if name.startswith("__")] == []


def test_bounds_are_half_open_and_an_empty_partition_starts_where_it_ends(source: Source, topic: str) -> None:
    first, *empty = places(source, topic)
    assert source.bounds([first, *empty]) == {first: Bounds(0, 10, 10)} | {place: Bounds(0, 0, 0) for place in empty}
    assert source.bounds(empty) == {place: Bounds(0, 0, 0) for place in empty}


def test_records_are_exactly_those_of_the_range_ascending(example: Example, source: Source, topic: str) -> None:
    [first, *_] = places(source, topic)
    values = [record.value for record in source.records(Range(first, 0, 10))]
    if isinstance(example, WithTransactions):
        expected = list(zip(range(10), minutes(*range(10)), strict=True))
    else:  # the server stamps
        expected = read(source, Range(first, 0, 10))
        assert values == [stamp.isoformat().encode() for stamp in minutes(*range(10))]
        assert [moment for _, moment in expected] == sorted({moment for _, moment in expected})
    assert read(source, Range(first, 0, 10)) == expected
    assert read(source, Range(first, 3, 7)) == expected[3:7]
    assert read(source, Range(first, 9, 10)) == expected[9:]
    record = next(source.records(Range(first, 4, 5)))
    assert (record.topic, record.partition, record.offset) == (topic, 0, 4)
    assert record.value


@WITH_TRANSACTIONS
def test_the_first_record_from_an_offset_on_of_many_partitions_is_read_at_once(
    example: WithTransactions, source: Source, topic: str
) -> None:
    first, second = places(source, topic)
    example.send(topic, *minutes(7), partition=1)
    with example.transaction(topic, *minutes(20), commit=True):
        pass
    example.delete_before(topic, 4)
    end = source.bounds([first])[first].log_end
    inside = {(first, 4): (4, 4), (first, 9): (9, 9), (first, 10): (10, 20), (second, 0): (0, 7)}
    outside = [(first, 3), (first, end), (second, 1), (second, 99)]
    answers = source.records_from([*inside, *outside])
    assert {asked: record and (record.offset, stamp(record)) for asked, record in answers.items()} == {
        asked: (offset, minutes(minute)[0]) for asked, (offset, minute) in inside.items()
    }
    assert source.records_from([]) == {}


@WITH_TRANSACTIONS
def test_from_the_end_mark_of_a_transaction_on_there_is_no_record(
    example: WithTransactions, source: Source, topic: str
) -> None:
    first, _ = places(source, topic)
    with example.transaction(topic, *minutes(20), commit=True):
        pass
    end = source.bounds([first])[first].last_stable
    assert source.records_from([(first, offset) for offset in range(11, end)]) == {
        (first, offset): None for offset in range(11, end)
    }


def test_reading_leaves_nothing_behind(source: Source, topic: str) -> None:
    [first, *_] = places(source, topic)
    before = source.bounds([first])
    unfinished = source.records(Range(first, 0, 10))
    next(unfinished)
    assert read(source, Range(first, 0, 10)) == read(source, Range(first, 0, 10))
    assert source.bounds([first]) == before


@WITH_TRANSACTIONS
def test_only_committed_records_are_read_and_gaps_are_skipped(
    example: WithTransactions, source: Source, topic: str
) -> None:
    first, _ = places(source, topic)
    with example.transaction(topic, *minutes(20, 21, 22), commit=False):
        pass
    example.send(topic, *minutes(30))
    with example.transaction(topic, *minutes(40, 41), commit=True):
        pass
    end = source.bounds([first])[first].last_stable
    seen = read(source, Range(first, 8, end))
    assert [stamp for _, stamp in seen] == minutes(8, 9, 30, 40, 41)
    assert [offset for offset, _ in seen] == sorted({offset for offset, _ in seen})
    assert source.count_records(Range(first, 0, end)) == 13
    aborted = (10, seen[2][0])
    assert source.first_record_in(first, [aborted]) is None
    assert source.first_record_in(first, [aborted, (seen[2][0], end)]) == seen[2][0]
    assert read(source, Range(first, *aborted)) == []


@WITH_TRANSACTIONS
def test_an_open_transaction_holds_back_what_is_stable_until_it_ends(
    example: WithTransactions, source: Source, topic: str
) -> None:
    first, second = places(source, topic)
    with example.transaction(topic, *minutes(20, 21), commit=True):
        held = source.bounds([first, second])
        assert held[first].log_start == 0
        assert held[first].last_stable == 10
        assert held[first].log_end > 11
        [transaction] = source.open_transactions(held).values()
        assert (transaction.at, transaction.first_offset) == (first, 10)
        assert transaction.held_back == held[first].log_end - 10
        assert read(source, Range(first, 8, 12)) == list(zip((8, 9), minutes(8, 9), strict=True))
        with pytest.raises(Unavailable, match=r"the last stable offset of .* is 10, but the range ends at"):
            source.check(1, [Range(first, 0, 12)], before_reading=True)
    after = source.bounds([first, second])
    assert after[first].last_stable == after[first].log_end
    assert source.open_transactions(after) == {}
    assert [stamp for _, stamp in read(source, Range(first, 8, after[first].log_end))] == minutes(8, 9, 20, 21)


@WITH_TRANSACTIONS
def test_a_moment_is_the_first_offset_stamped_then_or_later(
    example: WithTransactions, source: Source, topic: str
) -> None:
    first, second = places(source, topic)
    example.send(topic, *minutes(5, 50))  # timestamps need not ascend: offset 10 is stamped before offset 9
    [four, ninth, last] = minutes(4, 9, 50)
    between = four - timedelta(seconds=20)
    assert source.offsets_at([first, second], four) == {first: (4, four), second: None}
    assert source.offsets_at([first], between) == {first: (4, four)}
    assert source.offsets_at([first], NOON - timedelta(days=1)) == {first: (0, NOON)}
    assert source.offsets_at([first], ninth) == {first: (9, ninth)}
    assert source.offsets_at([first], ninth + timedelta(seconds=1)) == {first: (11, last)}
    assert source.offsets_at([first], last + timedelta(seconds=1)) == {first: None}


@WITH_TRANSACTIONS
def test_a_first_plan_starts_inside_the_bounds_of_every_partition(
    example: WithTransactions, source: Source, topic: str
) -> None:
    example.delete_before(topic, 4)
    bounds = source.bounds(places(source, topic))
    first, second = sorted(bounds)
    assert source.starting_offsets(bounds) == {first: 4, second: 0}, "the earliest, unless the pipeline file says else"


@WITH_TRANSACTIONS
def test_what_retention_took_is_named_with_the_way_out(example: WithTransactions, source: Source, topic: str) -> None:
    first, second = places(source, topic)
    example.send(topic, *minutes(0), partition=1)
    planned = [Range(first, 2, 8), Range(second, 0, 1)]
    source.check(7, planned, before_reading=True)
    example.delete_before(topic, 2)
    assert source.bounds([first])[first] == Bounds(2, 10, 10)
    source.check(7, planned, before_reading=True)
    example.delete_before(topic, 5)
    assert source.bounds([first, second]) == {first: Bounds(5, 10, 10), second: Bounds(0, 1, 1)}
    with pytest.raises(DataLost) as lost:
        source.check(7, planned, before_reading=True)
    assert lost.value.what == f"retention took offsets [2, 5) of {topic}-0 before they were read"
    assert "tidemark accept loss demo --why TEXT" in lost.value.next_step
    assert lost.value.context["manifest"] == 7
    assert lost.value.context["offsets"] == "[2,8)"
    source.check(7, planned, before_reading=False)  # what was read before it went is right
    source.refuse_lost(7, [Range(first, 5, 10)])
    example.delete_before(topic, 10)
    with pytest.raises(DataLost, match=r"retention took offsets \[2, 8\) of"):
        source.refuse_lost(7, planned)


@WITH_TRANSACTIONS
def test_a_range_whose_start_is_gone_is_not_read_as_if_it_were_whole(
    example: WithTransactions, source: Source, topic: str
) -> None:
    first, _ = places(source, topic)
    example.delete_before(topic, 5)
    with pytest.raises(Unavailable):
        read(source, Range(first, 2, 8))
    assert [offset for offset, _ in read(source, Range(first, 5, 8))] == [5, 6, 7]


def test_a_topic_that_was_made_again_is_refused_before_and_after_reading(
    example: Example, source: Source, topic: str
) -> None:
    first, *_ = places(source, topic)
    example.create(topic, example.partitions)
    example.send(topic, *minutes(*range(10)))
    again, *_ = places(example.source(topic), topic)
    assert again.topic_id != first.topic_id
    for before_reading in (True, False):
        with pytest.raises(TopicChanged, match=f"planned on id {re.escape(first.topic_id)}, now"):
            source.check(7, [Range(first, 0, 10)], before_reading=before_reading)
    source.check(7, [Range(again, 0, 10)], before_reading=True)


def test_a_topic_that_is_gone_is_refused_by_name(source: Source, topic: str) -> None:
    gone = Range(TopicPartition(f"{topic}x", "some-id", 0), 0, 10)
    with pytest.raises(TopicChanged, match=f"topic {topic}x no longer exists") as refused:
        source.check(7, [gone], before_reading=False)
    assert f"--topic {topic}x --why TEXT" in refused.value.next_step


def test_an_order_is_json_and_holds_no_secret(example: Example, source: Source) -> None:
    for opened in (source, example.with_secret()):
        order = opened.order()
        assert json.loads(json.dumps(order)) == order
        assert SECRET not in json.dumps(order)
        assert SECRET not in f"{opened.address} {opened.title} {opened.warnings()} {opened!r} {vars(opened)}"


def test_tools_for_lineage_get_a_name_that_holds_no_secret(example: Example, source: Source, topic: str) -> None:
    for opened in (source, example.with_secret()):
        dataset = opened.dataset(topic)
        assert dataset.name.endswith(topic)
        assert SECRET not in f"{dataset.namespace} {dataset.name}"
    assert source.dataset(topic) != source.dataset(f"{topic}x")


def test_executors_are_told_which_servers_they_must_reach(source: Source) -> None:
    for endpoint in source.endpoints():
        host, _, port = endpoint.rpartition(":")
        assert host
        assert port.isdecimal()


def test_a_plain_topic_is_not_compacted(source: Source, topic: str) -> None:
    assert source.compacted([topic]) == []
    assert source.compacted([]) == []


def test_a_source_that_nobody_can_reach_says_so_within_seconds(example: Example) -> None:
    with pytest.raises(Unavailable):
        example.unreachable().partitions(["orders"])
