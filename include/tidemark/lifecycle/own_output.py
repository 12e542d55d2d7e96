"""Refuses to plan a pipeline that would read the topics that its own sinks write to."""

from collections.abc import Iterable

from tidemark.errors import PlanRefused
from tidemark.model.offsets import TopicPartition
from tidemark.sinks.capabilities import WritesTopics


def refuse_own_output(output: WritesTopics, places: Iterable[TopicPartition]) -> None:
    """Raise ``PlanRefused`` if a sink writes to the topic of one of these partitions. Compares the ids of topics,
    because two addresses may lead to one cluster."""
    read = {at.topic_id: at.topic for at in places}
    for topic in sorted(read[id_] for id_ in output.topic_ids() & read.keys()):
        raise PlanRefused(
            f"sink {output.name} writes to topic {topic}, which this pipeline reads: each run would read what the last "
            "one wrote",
            next_step="nothing was planned; give the sink a topic of its own, or leave this one out of the source "
            f"(topics, topics_regex) of {output.pipeline_name}",
            sink=output.name,
            topic=topic,
        )
