"""Protects the names of pipelines. A former name is never used again. A pipeline whose file was only renamed by hand is
refused, because it would read its topics from the first record on."""

from collections.abc import Sequence

from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.errors import ConfigurationError, PlanRefused
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.folders import stream_folders
from tidemark.pipeline.settings import Pipeline


def refuse_renamed(pipeline_name: str, database: ManifestDatabase) -> None:
    """Raise ``ConfigurationError`` for the former name of a pipeline, and for a pipeline whose targets still have its
    former name."""
    for row in database.pipelines.former_names(pipeline_name):
        if row["name"] == pipeline_name:
            raise _has_another_name(row)
        if row["in_targets"]:
            raise ConfigurationError(
                f"the pipeline is being renamed from {row['name']}, and its targets still have the old name",
                next_step=f"end it: tidemark rename pipeline {row['name']} {row['pipeline']} --why TEXT",
                pipeline=pipeline_name,
            )


def _has_another_name(row: Row) -> ConfigurationError:
    old, new = row["name"], row["pipeline"]
    topic = split_name(old)[1]
    other = f"name it {new}; if it is another one, give it another name: a name is never used twice"
    as_member = (
        f"leave it out of the group, each_topic: {{{topic}: false}}; or, to have it as a member again, remove the file "
        f"of {new}, then: tidemark rename pipeline {new} {old} --why TEXT"
    )
    return ConfigurationError(
        f"the pipeline was renamed on {row['until']:%Y-%m-%d}: it is {new} now",
        next_step=other if topic is None else as_member,
        pipeline=old,
    )


def refuse_looks_renamed(pipeline: Pipeline, database: ManifestDatabase) -> None:
    """Raise ``PlanRefused`` for a pipeline that was never planned and makes the same rows of the same topics in the
    same targets as another one: it would read every record once more."""
    other = looks_renamed_from(pipeline, database)
    if other is not None:
        raise PlanRefused(
            f"the pipeline was never planned, and its topics, settings and sinks are those of pipeline {other}: every "
            "record that the topics still have would be read and written once more",
            next_step=f"nothing was planned; if it was renamed: tidemark rename pipeline {other} {pipeline.name} --why "
            "TEXT; if it is another one, give its sinks other names or targets",
        )


def looks_renamed_from(pipeline: Pipeline, database: ManifestDatabase) -> str | None:
    """Return the planned pipeline whose file this may have been: it is the same except for the name. Pipelines that
    share folders on purpose do not count."""
    targets = {sink.name: sink.target for sink in pipeline.sinks}
    shared = {name for sink in pipeline.sinks for name in sink.sharing()}
    for row in database.pipelines.planned_alike(pipeline.name, targets, pipeline.earlier_fingerprints()):
        topics = [topic for topic in row["topics"] if pipeline.source.reads(topic)]
        apart = row["name"] in shared or pipeline.name in row["shared_with"]
        if topics and not apart and _has_folders(pipeline.model_copy(update={"name": row["name"]}), topics, database):
            return str(row["name"])
    return None


def _has_folders(pipeline: Pipeline, topics: Sequence[str], database: ManifestDatabase) -> bool:
    """Return whether the pipeline is known to write these topics to the folders that it would use now."""
    known = {(row["pipeline"], row["sink"], row["topic"], row["folders"]) for row in database.sinks.folders(topics)}
    return all(
        (stream.pipeline, stream.sink, stream.topic, stream.folders) in known
        for stream in stream_folders(pipeline, topics)
    )
