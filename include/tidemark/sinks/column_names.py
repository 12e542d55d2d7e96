"""Names the columns that Tidemark gives the rows of a table in a lake: an Iceberg or a Delta table.

Standard library only: pipeline files are checked without the library of a table format.
"""

from collections.abc import Sequence
from typing import Final

TOPIC_PARTITION: Final = "_topic_partition"
IS_DELETED: Final = "_is_deleted"  # of a row that marks its key as deleted
LOG_GENERATION: Final = "_log_generation"
EVENT_TIME: Final = "_event_time"  # the column that every row gets beside those of its record
MANIFEST_ID: Final = "_manifest_id"
NUMBER: Final = "_row"  # of a row among those of its record, where a record may have several
# Iceberg keeps _partition for itself: Spark reads no table that has such a column. All tables of a lake have the same.
_RENAMED: Final = {"_partition": TOPIC_PARTITION}


def stored_names(names: Sequence[str]) -> list[str]:
    """The names in the table of columns of rows."""
    return [_RENAMED.get(name, name) for name in names]


def names_of_rows(stored: Sequence[str]) -> list[str]:
    """The names that columns of the table have in rows; digests are made of these."""
    before = {name: own for own, name in _RENAMED.items()}
    return [before.get(name, name) for name in stored]
