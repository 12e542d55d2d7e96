"""A file with ``each_topic``: its parts that all members share. ``loader.member`` makes the pipeline of one topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.config.base import LoadContext
from tidemark.config.yaml import Document
from tidemark.pipeline.each_topic import Template
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.settings import SourceSettings


@dataclass(frozen=True)
class Group:
    """A group. ``shared`` is the pipeline of the template: its source reads all topics, its sinks are those of one
    topic.

    ``wrong`` has the problems of topics whose difference is wrong; the other topics go on.
    """

    template: Template = field(repr=False)
    shared: Pipeline
    file: str
    document: Document = field(repr=False, compare=False)
    load_context: LoadContext = field(repr=False, compare=False)
    wrong: Mapping[str, InvalidPipelines]
    connection_ids: frozenset[str]

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def source(self) -> SourceSettings:
        return self.shared.source

    def reads(self, topic: str) -> bool:
        """Return whether the file makes a member for a topic."""
        return self.source.reads(topic) and not self.template.leaves_out(topic)

    def member_name(self, topic: str) -> str:
        return self.template.member_name(topic)

    def connections(self) -> set[str]:
        """Return the ids of the Airflow connections that the file names, also below ``each_topic``."""
        return set(self.connection_ids)


def shared_settings(pipeline: Pipeline | Group) -> Pipeline:
    """Return the settings that a DAG and its tasks need: schedule, retries, Spark, source."""
    return pipeline.shared if isinstance(pipeline, Group) else pipeline
