"""The columns that a table of current rows in a lake keeps beside the data: the origin and version of each row.

A row that marks its key as deleted is kept with its version, so that an older manifest does not bring the key back.

Standard library only: executors import it too.
"""

from typing import Final

from tidemark.sinks.column_names import LOG_GENERATION, TOPIC_PARTITION

ATTEMPT: Final = "_attempt"
# Which record a row was made of: never null, and unique together. A topic that is made again begins at offset 0 once
# more, with the next generation.
RECORD: Final = (LOG_GENERATION, "_topic", TOPIC_PARTITION, "_offset")
VERSION: Final = (*RECORD, ATTEMPT)  # behind the column of order_by, compared from left to right
