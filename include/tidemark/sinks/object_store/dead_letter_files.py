"""Dead letters that a sink keeps in Parquet files beside its rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.digest import Digest, row_digest
from tidemark.model.offsets import TopicPartition
from tidemark.model.receipt import PublishedObject
from tidemark.sinks.dead_letters import PAGE, PAGE_OF_VALUES, DeadLetter, columns_of, dead_letter
from tidemark.storage.base import ObjectStore

READ_ROWS = 64 * 1024  # in memory at a time
_PLACE = ("_topic", "_partition", "_offset")


def dead_letters_in(store: ObjectStore, files: Iterable[PublishedObject], *, values: bool) -> Iterator[DeadLetter]:
    """All dead letters of some files, a bounded number in memory; ``OSError`` for a file that cannot be read."""
    columns, rows = columns_of(values=values), PAGE_OF_VALUES if values else PAGE
    for _, page in _pages(store, files, columns, rows):
        yield from (dead_letter(dict(zip(page, row, strict=True))) for row in zip(*page.values(), strict=True))


def file_with_offset(
    store: ObjectStore, files: Iterable[PublishedObject], at: TopicPartition, offset: int
) -> PublishedObject | None:
    """The file that holds the dead letter of a record."""
    for file, page in _pages(store, files, _PLACE, PAGE):
        if (at.topic, at.partition, offset) in zip(*(page[name] for name in _PLACE), strict=True):
            return file
    return None


def are_as_written(store: ObjectStore, files: Iterable[PublishedObject]) -> bool:
    """Whether each file has the dead letters that were written; reads them all."""
    try:
        return all(rows_and_digest(store, file, deep=True) == (file.rows, file.digest) for file in files)
    except OSError:
        return False


def rows_and_digest(store: ObjectStore, file: PublishedObject, *, deep: bool) -> tuple[int, str]:
    """What a file has; without ``deep`` its digest is taken to be right. ``OSError`` when it cannot be read."""
    with store.open(file.path) as opened:
        try:
            parquet = pq.ParquetFile(opened)
            digest = file.digest
            if deep:
                digest = str(sum(map(row_digest, parquet.iter_batches(READ_ROWS)), Digest.zero()))
            return int(parquet.metadata.num_rows), digest
        except pa.ArrowException as error:
            raise OSError(f"{file.path} cannot be read: {error}") from error


def _pages(
    store: ObjectStore, files: Iterable[PublishedObject], columns: Sequence[str], rows: int
) -> Iterator[tuple[PublishedObject, dict[str, list[Any]]]]:
    for file in files:
        with store.open(file.path) as opened:
            try:
                for batch in pq.ParquetFile(opened).iter_batches(rows, columns=list(columns)):
                    yield file, batch.to_pydict()
            except pa.ArrowException as error:
                raise OSError(f"{file.path} cannot be read: {error}") from error
