"""Finds two pipelines that write one topic into the same folders: who lists these folders sees its records twice."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidemark.paths import may_meet
from tidemark.pipeline.settings import Pipeline


@dataclass(frozen=True)
class StreamFolders:
    """The folders of one topic in one sink, with times open, and the pipelines that may write there too."""

    pipeline: str
    sink: str
    topic: str
    folders: str
    shared_with: tuple[str, ...]


def stream_folders(pipeline: Pipeline, topics: Iterable[str]) -> list[StreamFolders]:
    """The folders of these topics in every sink that is read by listing folders."""
    return [
        StreamFolders(pipeline.name, sink.name, topic, folders, sink.sharing())
        for sink in pipeline.sinks
        for topic in topics
        if (folders := sink.folders_of(pipeline.name, topic))
    ]


def meetings(
    own: Sequence[StreamFolders], others: Iterable[StreamFolders]
) -> Iterator[tuple[StreamFolders, StreamFolders]]:
    """Pairs that share a topic and folders, where neither file names the other pipeline in ``shared_with``."""
    for mine, other in shared(own, others):
        if other.pipeline not in mine.shared_with and mine.pipeline not in other.shared_with:
            yield mine, other


def shared(
    own: Sequence[StreamFolders], others: Iterable[StreamFolders]
) -> Iterator[tuple[StreamFolders, StreamFolders]]:
    """Pairs of two pipelines that share a topic and folders."""
    for other in others:
        for mine in own:
            alike = mine.topic == other.topic and mine.pipeline != other.pipeline
            if alike and may_meet(mine.folders, other.folders):
                yield mine, other


def sharing(own: Sequence[StreamFolders], others: Sequence[StreamFolders]) -> set[str]:
    """The sinks whose folders belong to other pipelines too: a file allows it, or another one has such a folder."""
    return {mine.sink for mine in own if mine.shared_with} | {mine.sink for mine, _ in shared(own, others)}


def what_is_wrong(mine: StreamFolders, other: StreamFolders) -> str:
    """What readers of the shared folders would see."""
    return (
        f"sink {mine.sink} writes topic {mine.topic} into {mine.folders}, where pipeline {other.pipeline} writes it "
        "too: readers that list these folders see every record of both"
    )


def remedy(other: StreamFolders) -> str:
    """How to keep the folders apart, or to allow it."""
    shared = f"shared_with: [{other.pipeline}]"
    return f"change root or layout of the sink; or, to let both write there, set {shared} on the sink"
