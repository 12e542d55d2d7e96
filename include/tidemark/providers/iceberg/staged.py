"""The staging of an attempt in the location of its table, and the footer of a staged file.

    data/<manifest>/<attempt>/<task>-<number>-<uuid>.parquet          rows
    _staging/<manifest>/<attempt>/<sink>/<task>-<number>.parquet      dead letters
    _staging/<manifest>/<attempt>/open                                the attempt may have staged files

Readers see rows from the commit on that names their file. Programs that remove files which no snapshot names look
into ``data``, and skip folders whose names begin with ``_``. A restored database gives the number of an attempt out
again: by its uuid no file has the name of one that a snapshot may name.
"""

import re
from typing import Final

PARTITION: Final = b"tidemark.partition"  # the values of the one partition of a file, as JSON
SPEC: Final = b"tidemark.spec"  # the id of the partitioning that they are of
_S3: Final = re.compile(r"^s3[an]://")


def data_folder(manifest_id: int, attempt: int) -> str:
    """The folder of the rows of an attempt, relative to the location of the table."""
    return f"data/{manifest_id:010d}/{attempt:04d}"


def root_of(location: str) -> str:
    """The location of a table as a root of our store: a folder of this machine, or ``s3://``."""
    return _S3.sub("s3://", location.removeprefix("file://")).rstrip("/")
