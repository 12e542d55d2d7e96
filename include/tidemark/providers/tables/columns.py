"""The columns that a table of current rows in a lake has besides the data: the origin and version of each row.

A row that marks its key as deleted is kept with its version, so that an older manifest does not bring the key back.

Standard library only: executors import it too.
"""

from typing import Final

from tidemark.providers.tables.column_names import LOG_GENERATION, TOPIC_PARTITION

ATTEMPT: Final = "_attempt"
# The record that a row was made of: never null, and unique together. A topic that was created again begins at offset 0
# again, in the next generation.
RECORD: Final = (LOG_GENERATION, "_topic", TOPIC_PARTITION, "_offset")
VERSION: Final = (*RECORD, ATTEMPT)  # compared from left to right, after the column of order_by
