"""Locates the row of a record in a table of current rows, or says that a newer row of its key has replaced it."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.model.manifest import Publication
from tidemark.model.receipt import ObjectKind
from tidemark.providers.tables.column_names import IS_DELETED
from tidemark.providers.tables.columns import ATTEMPT
from tidemark.sinks.base import Ledger
from tidemark.sinks.located import Located, RecordStatus


def newest_row(ledger: Ledger, key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Located | None:
    """Return the row of the highest attempt among the rows of one record; None without rows. An earlier attempt may
    have left another row of the record, with another key."""
    row = max(rows, key=lambda each: each[ATTEMPT] or 0, default=None)
    if row is None:
        return None
    what = "a row that marks its key as deleted" if row[IS_DELETED] else "a row"
    values = {name: row[name] for name in key}
    return Located(ledger.name, row[ATTEMPT], RecordStatus.HELD, what, ObjectKind.DATA, ledger.target, values)


def replaced_row(ledger: Ledger, published: Publication) -> Located:
    counts = published.counts
    what = (
        f"a newer row of its key is in {ledger.target} ({counts.superseded:,} rows of the manifest had a newer row "
        f"in the manifest, {counts.stale:,} in the table; any row may have been replaced since)"
    )
    return Located(ledger.name, published.attempt, RecordStatus.REPLACED, what, place=ledger.target)
