"""Pipelines of one folder that read their own output again, by way of others."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import member
from tidemark.pipeline.own_output import topic_between
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline

_GROWN = 3  # topics that no file names, one made of the other: then there is no last one


def circle_warnings(pipeline: Pipeline | Group, others: Sequence[Pipeline | Group]) -> list[str]:
    """A sentence for the shortest circle through which the output of this pipeline, or of the first member of this
    group that has one, comes back to it; or to its group, whose members then never end."""
    for start in _members(pipeline, others) if isinstance(pipeline, Group) else [pipeline]:
        if path := _circle(start, others):
            return [_sentence(path)]
    return []


def _members(group: Group, others: Sequence[Pipeline | Group]) -> Iterator[Pipeline]:
    """The members of topics that the file names, that single pipelines write, and of one that its pattern matches."""
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
    """The member of a topic, if the file makes one that is right."""
    if group.reads(topic):
        try:
            yield member(group, topic)
        except InvalidPipelines:
            return


def _circle(start: Pipeline, others: Sequence[Pipeline | Group]) -> list[Pipeline]:
    """The shortest path from a pipeline back to it or, by topics that no file names, to its group; empty if there is
    none."""
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
    """(a pipeline that reads what this one writes, whether its file names the topic or stands for one pipeline)"""
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
