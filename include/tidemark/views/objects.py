"""Views of the published files of a pipeline, for readers."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotFound
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.capabilities import NamesFiles
from tidemark.sinks.registry import open_sink
from tidemark.text import with_nearest


@dataclass(frozen=True)
class ObjectView:
    """One published file; ``path`` is absolute, or an address in a store.

    Each sink of files has a copy of every record, so only files of a single ``sink`` may be counted together.
    """

    path: str
    rows: int
    bytes: int
    sink: str


def object_view(root: str, published: PublishedObject) -> ObjectView:
    return ObjectView(f"{root}/{published.path}", published.rows, published.bytes, published.sink)


def object_views(
    database: ManifestDatabase,
    pipeline_name: str,
    pipeline: Callable[[], Pipeline],
    *,
    sink: str | None = None,
    dead_letters: bool = False,
) -> list[ObjectView]:
    """Return the published files of a pipeline in one sink, sorted by manifest and path.

    The database knows the files of lakes. If ``sink`` is a table, or no sink is a lake, tables that name their files
    are asked; only that needs the ``pipeline``. Raises ``ConfigurationError`` without ``sink`` if several sinks have
    files, and ``NotFound`` for an unknown sink.
    """
    current = [known for known in database.sinks.known(pipeline_name) if known.is_current]
    if sink is not None:
        _refuse_unknown_sink(pipeline_name, sink, [known.name for known in current])
        current = [known for known in current if known.name == sink]
    if current and not dead_letters and not any(known.has_files for known in current):
        return _files_of_tables(pipeline(), {known.name for known in current})
    published = database.publications.objects(pipeline_name)
    if sink is None:
        _refuse_several(pipeline_name, sorted({written.sink for _, _, written in published}))
    kind = ObjectKind.DEAD_LETTER if dead_letters else ObjectKind.DATA
    return [
        object_view(root, written)
        for _, root, written in published
        if written.kind is kind and sink in (None, written.sink)
    ]


def _files_of_tables(pipeline: Pipeline, names: Collection[str]) -> list[ObjectView]:
    tables = [sink for sink in pipeline.sinks if sink.names_files and sink.name in names]
    _refuse_several(pipeline.name, sorted(table.name for table in tables))
    sinks = [open_sink(pipeline.name, table, from_environment) for table in tables]
    return [
        ObjectView(*file, sink.name)
        for sink in sinks
        if isinstance(sink.output, NamesFiles)
        for file in sink.output.named_files()
    ]


def _refuse_several(pipeline_name: str, with_files: Sequence[str]) -> None:
    if len(with_files) > 1:
        raise ConfigurationError(
            f"sinks {' and '.join(with_files)} each hold every record as files: choose one",
            next_step=" or ".join(f"tidemark objects {pipeline_name} --sink {name}" for name in with_files),
            pipeline=pipeline_name,
        )


def _refuse_unknown_sink(pipeline_name: str, sink: str, known: Sequence[str]) -> None:
    if sink not in known:
        raise NotFound(
            with_nearest(f"nothing was planned for a sink {sink}", sink, known),
            next_step=f"name one of: {', '.join(known)}" if known else f"first: tidemark plan {pipeline_name}",
            pipeline=pipeline_name,
        )
