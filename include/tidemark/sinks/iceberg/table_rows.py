"""What the rows of an Iceberg table have beside those of other formats."""

from abc import abstractmethod

from pyiceberg.table import Table

from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.iceberg.change import FileChanges
from tidemark.sinks.lake_tables.table_rows import TableRows


class IcebergRows(TableRows[Table, FileChanges]):
    def withdraw(self, table: Table, changes: FileChanges) -> None:
        """Remove what ``changes`` has written, when the catalog has refused its commit."""

    @abstractmethod
    def named_files(self, table: Table) -> list[NamedFile]:
        """The files with all rows that the table shows; raises ``SinkRefused`` when files alone do not say it."""
