"""One staged file of a lake, in the format of its sink."""

from typing import BinaryIO

import pyarrow as pa

from tidemark.sinks.formats.base import Format
from tidemark.sinks.staging.grouping import HASH_COLUMNS, digest_of
from tidemark.sinks.staging.staged_file import StagedFile
from tidemark.storage.base import ObjectStore


class FormattedFile(StagedFile):
    """A staged file in one format; its digest is the one that the format's writer returns."""

    def __init__(self, store: ObjectStore, key: str, final: str | None, format_: Format, sample: pa.Table) -> None:
        super().__init__(store, key, final)
        self._format = format_
        self._writer = self._rows = format_.writer(self._file, sample)

    def append(self, measured: pa.Table) -> None:
        """Append rows, which have the columns of ``HASH_COLUMNS`` too."""
        rows = measured.drop_columns(HASH_COLUMNS.names)
        self._measure(rows, self._rows.write(rows, digest_of(measured)))

    def _counted(self, file: BinaryIO) -> int:
        return self._format.count(file)
