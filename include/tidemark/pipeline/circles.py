"""Finds pipelines of one folder that read their own output again, through other pipelines."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import member
from tidemark.pipeline.own_output import topic_between
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline

_GROWN = 3  # topics on a path that no file names, each made from the one before; more would follow without an end


def circle_warnings(pipeline: Pipeline | Group, others: Sequence[Pipeline | Group]) -> list[str]:
    """Return a sentence for the shortest circle through which output of this pipeline comes back to it. For a group,
    take the first member with a circle, also one that comes back to its group, whose members then never end.
    """
    for start in _members(pipeline, others) if isinstance(pipeline, Group) else [pipeline]:
        if path := _circle(start, others):
            return [_sentence(path)]
    return []


def _members(group: Group, others: Sequence[Pipeline | Group]) -> Iterator[Pipeline]:
    """Yield the members for topics that the file names, that single pipelines write, and for an example of its
    pattern.
    """
    written = [
        topic
        for other in others
        if isinstance(other, Pipeline)
        for sink in other.sinks
        if topic_between(sink, group.source)
        for topic in sink.writes_topics()[1]
    ]
    for topic in dict.fromkeys([*_named(group), *written, *group.template.examples()]):
        yield from _member(group, topic)


def _named(group: Group) -> list[str]:
    return [*group.source.topics, *group.template.differences]


def _member(group: Group, topic: str) -> Iterator[Pipeline]:
    """Yield the member for a topic, if the file makes a valid one."""
    if group.reads(topic):
        try:
            yield member(group, topic)
        except InvalidPipelines:
            return


def _circle(start: Pipeline, others: Sequence[Pipeline | Group]) -> list[Pipeline]:
    """Return the shortest path from a pipeline back to itself or, through topics that no file names, to its group.
    Empty if there is no circle.
    """
    paths = [([start], 0)]
    seen = {start.name}
    for path, grown in paths:
        for reader, is_named in _readers(path[-1], others):
            now = grown + (not is_named)
            if reader.name == start.name:
                if len(path) > 1:
                    return [*path, reader]
            elif now == _GROWN:
                if split_name(reader.name)[0] == split_name(start.name)[0]:
                    return [*path, reader]
            elif reader.name not in seen:
                seen.add(reader.name)
                paths.append(([*path, reader], now))
    return []


def _readers(writer: Pipeline, others: Sequence[Pipeline | Group]) -> Iterator[tuple[Pipeline, bool]]:
    """Yield each pipeline that reads what this one writes, and whether a file names the topic or the reader is a single
    pipeline.
    """
    for other in others:
        for sink in writer.sinks:
            if isinstance(other, Pipeline):
                if topic_between(sink, other.source):
                    yield other, True
                continue
            address, topics = sink.writes_topics()
            if address is not None and address.is_same(other.source.address()):
                for topic in topics:
                    for reader in _member(other, topic):
                        yield reader, topic in _named(other)


def _between(writer: Pipeline, reader: Pipeline) -> str | None:
    return next((topic for sink in writer.sinks if (topic := topic_between(sink, reader.source))), None)


def _sentence(path: Sequence[Pipeline]) -> str:
    steps = [f"{writer.name} writes {_between(writer, reader)} for {reader.name}" for writer, reader in pairwise(path)]
    first, last = path[0].name, path[-1].name
    back, end = ("it", "this never ends") if first == last else ("its group", "each plan adds topics, without an end")
    return (
        f"the output of {first} comes back to {back}: {', '.join(steps)}; unless a transform lets less through each "
        f"time, {end}: give one of them another topic"
    )
