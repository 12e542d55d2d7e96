"""Names the columns that Tidemark adds to the rows of a table.

Standard library only: pipeline files are checked without the library of a table format.
"""

from collections.abc import Sequence
from typing import Final

TOPIC_PARTITION: Final = "_topic_partition"
IS_DELETED: Final = "_is_deleted"  # true in a row that marks its key as deleted
LOG_GENERATION: Final = "_log_generation"
EVENT_TIME: Final = "_event_time"  # every row gets it besides the columns of its record
MANIFEST_ID: Final = "_manifest_id"
NUMBER: Final = "_row"  # the number of a row among those of its record, if a record may have several
# Iceberg reserves _partition: Spark cannot read a table with such a column. Delta tables use the same name.
_RENAMED: Final = {"_partition": TOPIC_PARTITION}


def stored_names(names: Sequence[str]) -> list[str]:
    """Return the names that columns of rows have in the table."""
    return [_RENAMED.get(name, name) for name in names]


def names_of_rows(stored: Sequence[str]) -> list[str]:
    """Return the names that columns of the table have in rows; digests use these names."""
    before = {name: own for own, name in _RENAMED.items()}
    return [before.get(name, name) for name in stored]
