"""The staging of an attempt in the location of its table, and the footer of a staged file.

    data/<manifest>/<attempt>/<task>-<number>-<uuid>.parquet          rows
    _staging/<manifest>/<attempt>/<sink>/<task>-<number>.parquet      dead letters
    _staging/<manifest>/<attempt>/open                                the attempt may have staged files

Readers see rows once a commit names their file. Programs that remove files which no snapshot names look into ``data``,
and skip folders whose names begin with ``_``. A restored database may reuse the number of an attempt: the uuid keeps
its files from having the name of a file that a snapshot names.
"""

import re
from typing import Final

PARTITION: Final = b"tidemark.partition"  # the partition values of a file, as JSON; all its rows have the same
SPEC: Final = b"tidemark.spec"  # the id of the partitioning to which these values belong
_S3: Final = re.compile(r"^s3[an]://")


def data_folder(manifest_id: int, attempt: int) -> str:
    """Return the folder of an attempt's rows, relative to the location of the table."""
    return f"data/{manifest_id:010d}/{attempt:04d}"


def root_of(location: str) -> str:
    """Return the location of a table as a root of Tidemark's store: a folder of this machine, or ``s3://``."""
    return _S3.sub("s3://", location.removeprefix("file://")).rstrip("/")
