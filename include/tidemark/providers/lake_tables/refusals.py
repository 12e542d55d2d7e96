"""Errors of lake tables in any format. ``context`` is that of the table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tidemark.errors import THEN_RETRY, Fenced, LakeConflict, SinkRefused, WorkFailed
from tidemark.model.reasons import without_values
from tidemark.providers.lake_tables.lost_files import wrong_files
from tidemark.sinks.staging.staged_file import staging_of
from tidemark.storage.base import ObjectStore


def no_table(context: Mapping[str, Any]) -> SinkRefused:
    """Return the error for a table that an attempt has prepared, and that no longer exists."""
    return SinkRefused(
        "the table does not exist",
        next_step="restore it, or let auto_create make a new one" + THEN_RETRY,
        **context,
    )


def no_columns(names: Sequence[str], described: str, context: Mapping[str, Any]) -> SinkRefused:
    return SinkRefused(
        f"the table has no column {', '.join(names)}",
        next_step=f"write auto_create: true, or add to it: {described}",
        **context,
    )


def file_gone(error: OSError, context: Mapping[str, Any]) -> SinkRefused:
    """Return the error for a file that the table names and another program has removed."""
    return SinkRefused(
        f"a file of the table is gone: {error.filename or error}",
        next_step="restore it; or put its rows there again: tidemark audit {pipeline} names the manifests to replay; "
        "when it is no file of rows, take the table back to a state that is whole" + THEN_RETRY,
        **context,
    )


def refuse_removed(store: ObjectStore, sizes: Mapping[str, int], next_step: str, context: Mapping[str, Any]) -> None:
    """Raise ``WorkFailed`` if a new file is missing or has another size.

    Programs remove files that no version of the table names.
    """
    for what in wrong_files(store, sizes, listed=False).values():
        raise WorkFailed(f"right when the table was to name it, {what}", next_step=next_step, **context)


def fenced_by_its_number(attempt: int, context: Mapping[str, Any]) -> Fenced:
    """Return the error of an attempt whose number a restored database has used a second time."""
    return Fenced(
        f"attempt {attempt} is fenced: another attempt of this number has put other rows, for a database that was "
        "restored since",
        next_step="nothing to do here if a newer attempt is at work; else the next one goes on from there: "
        "tidemark retry {pipeline}",
        **context,
    )


def restored_meanwhile(context: Mapping[str, Any]) -> LakeConflict:
    """Return the error for a table that went back between two tries of a commit.

    A second try on top of it would hide this, because the positions of the target would grow as usual.
    """
    return LakeConflict(
        "another program restored an older version of the table while this commit was tried",
        next_step="nothing was published; tidemark retry {pipeline} says how to go on",
        **context,
    )


@contextmanager
def storing(sink: str, next_step: str, context: Mapping[str, Any]) -> Iterator[None]:
    """Translate errors of the store, and errors of rows that do not fit the table's columns or have a column that the
    table has lost."""
    try:
        with staging_of(sink, **context):
            yield
    except (pa.ArrowException, KeyError) as error:
        raise SinkRefused(
            f"the table cannot store a row: {without_values(str(error))[:300]}", next_step=next_step, **context
        ) from None
