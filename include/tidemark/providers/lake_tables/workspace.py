"""An in-memory database of DuckDB for the rows of one merge or count; it spills to a folder for temporary files."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import pyarrow as pa

from tidemark.errors import THEN_RETRY, WorkFailed
from tidemark.text import named_queries

QUERIES: Final = named_queries("tidemark.providers.lake_tables", "queries.sql")
MEMORY: Final = "1GB"  # beyond this, DuckDB spills to the folder


class Workspace(ExitStack):
    """Runs the named statements of ``queries.sql`` with one thread. It opens no files except those to which it
    spills."""

    def __init__(self) -> None:
        super().__init__()
        folder = self.enter_context(TemporaryDirectory(prefix="tidemark-rows-"))
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": MEMORY,
            "temp_directory": folder,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._connection = duckdb.connect(":memory:", config=settings)
        self.callback(self._connection.close)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET python_enable_replacements = false")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def take(self, query: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Run a statement over ``incoming``, which has the rows of these batches; one batch at a time is in memory.

        Raises the error of reading the batches itself, not DuckDB's translation of it.
        """
        errors: list[BaseException] = []

        def read() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except BaseException as error:
                errors.append(error)
                raise

        self._connection.register("incoming", pa.RecordBatchReader.from_batches(schema, read()))
        try:
            self.run(query)
        except Exception:
            if errors:
                raise errors[0] from None
            raise
        finally:
            self._connection.unregister("incoming")

    def run(self, query: str) -> None:
        with _bounded():
            self._connection.execute(QUERIES[query])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with _bounded():
            return self._connection.sql(QUERIES[query]).fetchall()

    def table(self, query: str) -> pa.Table:
        with _bounded():
            made: pa.Table = self._connection.sql(QUERIES[query]).to_arrow_table()
            return made


@contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise WorkFailed(
            f"the keys of the rows do not fit into {MEMORY} of memory and the folder for temporary files",
            next_step="free space there (TMPDIR names it)" + THEN_RETRY,
        ) from None
