"""Pipelines of one folder that read their own output again, by way of others."""

from collections.abc import Sequence
from itertools import pairwise

from tidemark.pipeline.own_output import topic_between
from tidemark.pipeline.settings import Pipeline


def circle_warnings(pipeline: Pipeline, others: Sequence[Pipeline]) -> list[str]:
    """A sentence for the shortest circle of other pipelines through which the output of this one comes back to it."""
    paths = [[pipeline]]
    seen = {pipeline.name}
    for path in paths:
        for reader in others:
            if reader.name == pipeline.name and len(path) > 1 and _between(path[-1], pipeline):
                return [_sentence([*path, pipeline])]
            if reader.name not in seen and _between(path[-1], reader):
                seen.add(reader.name)
                paths.append([*path, reader])
    return []


def _between(writer: Pipeline, reader: Pipeline) -> str | None:
    return next((topic for sink in writer.sinks if (topic := topic_between(sink, reader.source))), None)


def _sentence(path: Sequence[Pipeline]) -> str:
    steps = [f"{writer.name} writes {_between(writer, reader)} for {reader.name}" for writer, reader in pairwise(path)]
    return (
        f"the output of {path[0].name} comes back to it: {', '.join(steps)}; unless a transform lets less through each "
        "time, this never ends: give one of them another topic"
    )
