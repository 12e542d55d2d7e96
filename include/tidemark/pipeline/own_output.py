"""Finds a topic that a pipeline writes, and that it or another pipeline reads.

Topics are compared here by name and address, as the files have them. A plan compares the ids of the topics.
"""

from tidemark.sinks.settings import SinkSettings
from tidemark.sources.settings import SourceSettings


def topic_between(sink: SinkSettings, source: SourceSettings) -> str | None:
    """Return the first topic that the sink writes to and the source reads; None if there is no such topic."""
    address, topics = sink.writes_topics()
    if address is None or not address.is_same(source.address()):
        return None
    return next((topic for topic in topics if source.reads(topic)), None)
