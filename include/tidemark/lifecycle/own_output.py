"""Refuses to plan a pipeline that would read the topics that its own sinks write to."""

from collections.abc import Iterable
from contextlib import suppress

from tidemark.errors import PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import OF_ONE_SINK
from tidemark.model.offsets import TopicPartition
from tidemark.sinks.capabilities import WritesTopics


def refuse_own_output(context: Context, places: Iterable[TopicPartition]) -> None:
    """Raise ``PlanRefused`` if a sink writes to the topic of one of these partitions. Compares the ids of topics,
    because two addresses may lead to one cluster. Leaves out a sink that does not answer."""
    read = {at.topic_id: at.topic for at in places}
    for sink in context.sinks:
        with suppress(*OF_ONE_SINK):
            own = sink.output.topic_ids() if isinstance(sink.output, WritesTopics) else set()
            for topic in sorted(read[id_] for id_ in own & read.keys()):
                raise PlanRefused(
                    f"sink {sink.name} writes to topic {topic}, which this pipeline reads: each run would read what "
                    "the last one wrote",
                    next_step="nothing was planned; give the sink a topic of its own, or leave this one out of the "
                    f"source (topics, topics_regex) of {context.pipeline_name}",
                    sink=sink.name,
                    topic=topic,
                )
