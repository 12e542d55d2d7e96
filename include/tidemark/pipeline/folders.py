"""Finds pipelines that write one topic into the same folders, so that readers of these folders see its records twice;
and sinks whose folders lie in each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tidemark.paths import may_meet
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.settings import nested_folders


@dataclass(frozen=True)
class StreamFolders:
    """The folders of one topic in one sink, with placeholders for times, and the pipelines that may write there too.

    ``success_files``: files there say which hours are complete, so no other pipeline may write there.
    """

    pipeline: str
    sink: str
    topic: str
    folders: str
    shared_with: tuple[str, ...]
    success_files: bool = False

    def permits(self, other: "StreamFolders") -> bool:
        """Return whether one of the two files names the other pipeline in ``shared_with``."""
        return other.pipeline in self.shared_with or self.pipeline in other.shared_with


def stream_folders(pipeline: Pipeline, topics: Iterable[str]) -> list[StreamFolders]:
    """Return the folders of these topics in every sink that is read by listing folders."""
    return [
        StreamFolders(pipeline.name, sink.name, topic, folders, sink.sharing(), sink.shows_hours())
        for sink in pipeline.sinks
        for topic in topics
        if (folders := sink.folders_of(pipeline.name, topic))
    ]


def folders_read(pipeline: Pipeline, topics: Iterable[str]) -> list[StreamFolders]:
    """Return the folders of those of these topics that the pipeline reads."""
    return stream_folders(pipeline, [topic for topic in topics if pipeline.source.reads(topic)])


def meetings(
    own: Sequence[StreamFolders], others: Iterable[StreamFolders]
) -> Iterator[tuple[StreamFolders, StreamFolders]]:
    """Yield pairs that share a topic and folders, and may not: neither file names the other pipeline in
    ``shared_with``, or one of them writes success files there.
    """
    for other in others:
        for mine in own:
            alike = mine.topic == other.topic and mine.pipeline != other.pipeline
            may = mine.permits(other) and not (mine.success_files or other.success_files)
            if alike and not may and may_meet(mine.folders, other.folders):
                yield mine, other


@dataclass(frozen=True)
class Meeting:
    """An overlap of folders of two pipelines. The plan of this pipeline, or of the one that comes later, is refused."""

    what: str
    next_step: str


def meetings_of(
    pipeline: Pipeline,
    others: Iterable[Pipeline],
    own: Sequence[StreamFolders],
    of_files: Sequence[StreamFolders],
    *,
    stored: Sequence[StreamFolders] = (),
    is_published: Callable[[str, str], bool] = lambda *_: False,
) -> list[Meeting]:
    """Return the overlaps of a pipeline's folders with those of other pipelines: of its ``own`` ones with those in the
    other files and with ``stored`` ones.

    Stored folders count whatever other files say. ``is_published`` returns whether a pipeline and sink have already
    published to their place. Then the sink cannot be moved, and its place itself refuses a later one.
    """
    new = [folders for folders in own if folders not in stored]
    shared = dict.fromkeys([*meetings(own, stored), *meetings(new, of_files)])
    return [
        *(Meeting(what_is_wrong(mine, other), remedy(mine, other)) for mine, other in shared),
        *_nested_places(pipeline, others, is_published),
    ]


def _nested_places(
    pipeline: Pipeline, others: Iterable[Pipeline], is_published: Callable[[str, str], bool]
) -> Iterator[Meeting]:
    """Yield an overlap for each sink of another pipeline whose folder lies inside one of this pipeline, or contains
    it.
    """
    for other in others:
        for sink, beside in product(pipeline.sinks, other.sinks if other.name != pipeline.name else ()):
            nested = nested_folders(sink, pipeline.name, beside, other.name)
            if nested and not is_published(pipeline.name, sink.name) and not is_published(other.name, beside.name):
                yield Meeting(
                    f"sink {sink.name} writes to {nested[0]}, and sink {beside.name} of pipeline {other.name} to "
                    f"{nested[1]}: one lies in the other, and the later sink is refused",
                    "give each a folder of its own",
                )


def what_is_wrong(mine: StreamFolders, other: StreamFolders) -> str:
    """Return what readers of the shared folders would see."""
    what = (
        f"sink {mine.sink} writes topic {mine.topic} into {mine.folders}, where pipeline {other.pipeline} writes it too"
    )
    if mine.permits(other):
        return f"{what}: a file _SUCCESS of one pipeline would call hours complete that the other one has not read"
    return f"{what}: readers that list these folders see every record of both"


def way_in(member: str, other: str) -> str:
    """Return how a pipeline that copies a topic becomes a member of a group."""
    return (
        f"to go on with {other} as a member of the group, remove its file, then: tidemark rename pipeline {other} "
        f"{member} --why TEXT; or leave the topic out, each_topic: {{{split_name(member)[1]}: false}}"
    )


def remedy(mine: StreamFolders, other: StreamFolders) -> str:
    """Return how to keep the folders apart, or how to allow the overlap; for a member of a group, also how the other
    pipeline becomes that member.
    """
    for member, single in ((mine, other), (other, mine)):
        if split_name(member.pipeline)[1] is not None:
            return f"{way_in(member.pipeline, single.pipeline)}; or give it another root or layout"
    if mine.success_files:
        return "change root or layout of the sink; or, to let both write there, leave success_files out of the sink"
    if other.success_files:
        return (
            "change root or layout of the sink; or, to let both write there, leave success_files out of sink "
            f"{other.sink} of pipeline {other.pipeline}, and plan that one first"
        )
    shared = f"shared_with: [{other.pipeline}]"
    return f"change root or layout of the sink; or, to let both write there, set {shared} on the sink"
