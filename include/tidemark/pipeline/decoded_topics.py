"""Refuses topics for which ``decode`` of a pipeline file has no decoder, or several."""

from collections.abc import Iterable

from tidemark.errors import ConfigurationError
from tidemark.pipeline.settings import Pipeline


def refuse_undecoded(pipeline: Pipeline, topics: Iterable[str], *, manifest_id: int | None = None) -> None:
    """Raise ``ConfigurationError`` for the first topic whose records cannot be decoded."""
    for topic in topics:
        if problem := pipeline.decode.problem_with_topic(topic):
            raise ConfigurationError(
                f"topic {topic} {problem}", next_step=next_step(pipeline), pipeline=pipeline.name, manifest=manifest_id,
                topic=topic,
            )  # fmt: skip


def next_step(pipeline: Pipeline) -> str:
    return (
        "write the topic into topics or topics_regex of exactly one entry of decode, or leave it out of "
        f"source.{pipeline.source.kind}; then: tidemark doctor {pipeline.name}"
    )
