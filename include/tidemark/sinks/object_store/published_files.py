"""Compares published files with what was written: those of a lake, and dead letters that any sink keeps."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from tidemark.model.manifest import count_of
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.paths import DEAD_LETTERS
from tidemark.sinks.base import Expected, Output
from tidemark.sinks.object_store.dead_letter_files import rows_and_digest
from tidemark.storage.base import ObjectStore


def file_difference(
    pipeline_name: str,
    manifest_id: int,
    object_: PublishedObject,
    size: int | None,
    read: Callable[[], tuple[int, str]],
) -> Problem | None:
    """What is wrong with a published file, if anything: ``size`` is its own in bytes, None when it is not there.

    ``read`` gives the rows and the digest that it has; it is asked last, and may raise ``OSError``.
    """
    what = None
    if size is None:
        what = f"{object_.path} is missing ({count_of(object_.rows, 'row')})"
    elif size != object_.bytes:
        what = f"{object_.path} has {size:,} bytes instead of {object_.bytes:,}"
    else:
        try:
            rows, digest = read()
        except OSError as unreadable:
            what = f"{object_.path} cannot be read: {str(unreadable)[:120]}"
        else:
            if rows != object_.rows:
                what = f"{object_.path} has {count_of(rows, 'row')} instead of {object_.rows:,}"
            elif digest != object_.digest:
                what = f"{object_.path} holds other rows than were written (digest {digest})"
    replay = f"tidemark replay {pipeline_name} --manifest {manifest_id}"
    return None if what is None else Problem(manifest_id, what, replay)


def lost_dead_letters(
    expected: Expected, output: Output, store: ObjectStore, shown: Mapping[int, int], *, deep: bool
) -> Iterator[Problem]:
    """Dead letters that a sink keeps in Parquet files and that are not there any more; ``deep`` reads them.

    ``shown`` is the attempt that the sink shows of each manifest: where it is another one, the verdict tells that.
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
            read = partial(rows_and_digest, store, part, deep=deep)
            difference = file_difference(output.pipeline_name, manifest.id, part, sizes.get(part.path), read)
            if difference:
                yield difference
