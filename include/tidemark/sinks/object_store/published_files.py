"""Reads published files of a lake, and dead letters of any sink, and compares them with what was written."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

import pyarrow.compute as pc

from tidemark.model.manifest import count_of
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.paths import DEAD_LETTERS
from tidemark.sinks.base import Expected, Output
from tidemark.sinks.dead_letters import PAGE, PAGE_OF_VALUES, DeadLetter, columns_of, dead_letter
from tidemark.sinks.formats.base import Format, Unreadable, format_of
from tidemark.storage.base import ObjectStore

READERS = 4  # files compared at once; each has 64 Ki rows in memory


@contextmanager
def opened(store: ObjectStore, path: str) -> Iterator[tuple[Format, BinaryIO]]:
    """Open a published file, and yield its format and content; raises ``OSError`` if it is missing or unreadable."""
    try:
        with store.open(path) as file:
            yield format_of(path), file
    except (Unreadable, OSError) as error:
        raise OSError(f"a file cannot be read: {path}: {str(error)[:120]}") from error


def rows_and_digest(store: ObjectStore, file: PublishedObject, *, deep: bool) -> tuple[int, str]:
    """Return the number of rows of a file, and their digest; without ``deep`` the recorded digest, unchecked."""
    with opened(store, file.path) as (written, content):
        rows = written.count(content)
    if not deep:
        return rows, file.digest
    with opened(store, file.path) as (written, content):
        return rows, str(written.digest(content))


def changed(store: ObjectStore, files: Sequence[PublishedObject]) -> list[PublishedObject]:
    """Return the files whose rows are not as they were written. Reads all of the files, several at once."""
    with ThreadPoolExecutor(READERS) as pool:
        digests = list(pool.map(partial(_digest_in, store), files))
    return [file for file, digest in zip(files, digests, strict=True) if digest != file.digest]


def _digest_in(store: ObjectStore, file: PublishedObject) -> str | None:
    try:
        with opened(store, file.path) as (written, content):
            return str(written.digest(content))
    except OSError:
        return None


def dead_letters_in(store: ObjectStore, files: Iterable[PublishedObject], *, values: bool) -> Iterator[DeadLetter]:
    """Yield all dead letters of some files, a bounded number in memory; raises ``OSError`` for an unreadable file."""
    columns, page = columns_of(values=values), PAGE_OF_VALUES if values else PAGE
    for file in files:
        with opened(store, file.path) as (written, content):
            yield from map(dead_letter, written.dead_letters(content, columns, page))


def holds(store: ObjectStore, file: PublishedObject, at: TopicPartition, offset: int) -> bool:
    """Return whether a file has a record. Reads the file only if its spans enclose the record."""
    if not file.may_hold(at.topic, at.partition, offset):
        return False
    with opened(store, file.path) as (written, content):
        places = written.places(content)
    same = pc.and_(pc.equal(places["_topic"], at.topic), pc.equal(places["_partition"], at.partition))
    return bool(pc.any(pc.and_(same, pc.equal(places["_offset"], offset))).as_py())


def file_difference(
    pipeline_name: str,
    manifest_id: int,
    file: PublishedObject,
    sizes: Mapping[str, int],
    store: ObjectStore,
    *,
    deep: bool,
) -> Problem | None:
    """Return the problem of a published file, or None. ``sizes`` has the bytes of each file that exists.

    Reads the file only if its size is right; ``deep`` reads all of it.
    """
    what, size = None, sizes.get(file.path)
    if size is None:
        what = f"a file with {count_of(file.rows, 'row')} is missing: {file.path}"
    elif size != file.bytes:
        what = f"a file has {size:,} bytes instead of {file.bytes:,}: {file.path}"
    else:
        try:
            rows, digest = rows_and_digest(store, file, deep=deep)
        except OSError as unreadable:
            what = str(unreadable)
        else:
            if rows != file.rows:
                what = f"a file has {count_of(rows, 'row')} instead of {file.rows:,}: {file.path}"
            elif digest != file.digest:
                what = f"a file holds other rows than were written: {file.path} (digest {digest})"
    replay = f"tidemark replay {pipeline_name} --manifest {manifest_id}"
    return None if what is None else Problem(manifest_id, what, replay)


def lost_dead_letters(
    expected: Expected, output: Output, store: ObjectStore, shown: Mapping[int, int], *, deep: bool
) -> Iterator[Problem]:
    """Yield a problem for each missing or changed file of dead letters; ``deep`` reads the files.

    ``shown`` has the attempt that the sink shows of each manifest. If that is not the published one, the verdict
    already reports it.
    """
    sizes = dict(store.list(DEAD_LETTERS))
    for manifest, publication in expected.published():
        receipt = expected.receipt(manifest.id, publication.attempt)
        if receipt is None or shown.get(manifest.id) != publication.attempt:
            continue
        given_up = expected.given_up(manifest.id, publication.attempt)
        for part in output.parts(receipt, ObjectKind.DEAD_LETTER):
            if part.path in given_up:
                continue
            difference = file_difference(output.pipeline_name, manifest.id, part, sizes, store, deep=deep)
            if difference:
                yield difference
