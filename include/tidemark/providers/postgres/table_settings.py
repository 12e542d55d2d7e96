"""The keys that every sink over tables of PostgreSQL shares."""

from abc import abstractmethod
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool

from tidemark.config import values
from tidemark.model.storable import RowCheck, Storable
from tidemark.sinks.settings import SinkSettings
from tidemark.sinks.storable_names import StorableNames

DEAD_LETTERS = "tidemark_target.dead_letter"
LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer names without an error
SYSTEM_COLUMNS = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")  # in every table; only in lower case
LONGEST_KEY = 2_600  # bytes; an index entry has at most 2,704, including headers of the entry and its columns


class TableSettings(SinkSettings):
    """A table in the PostgreSQL database of a connection."""

    connection: Annotated[str, AfterValidator(values.connection_id)] = Field(
        description="The id of an Airflow connection, such as "
        "`AIRFLOW_CONN_WAREHOUSE=postgresql://user:password@host:5432/database`.",
        examples=["warehouse"],
    )
    table: Annotated[str, AfterValidator(values.table)] = Field(
        description="`prices` or `sales.prices`: lower-case letters, digits and `_`, of one manifest database.",
        examples=["prices", "sales.prices"],
    )
    auto_create: StrictBool = Field(
        default=False,
        description="Whether to create the table, or columns that it lacks; else the error names the statement.",
    )

    def storable_names(self) -> StorableNames:
        """Return the names that the table can store.

        A % would begin a placeholder in the statements of psycopg. Fields inside a column are in jsonb, which allows
        any name.
        """
        why = "PostgreSQL has a column of that name in every table"
        return StorableNames(
            unfit="%", unfit_why="psycopg takes no name with %", longest=LONGEST_NAME,
            reserved_exactly=dict.fromkeys(SYSTEM_COLUMNS, why),
        )  # fmt: skip

    @property
    @abstractmethod
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the table's unique index."""

    @property
    def longest_key(self) -> int:
        """Return the most bytes of a key: it must fit an index entry, a third of a page."""
        return LONGEST_KEY

    def storable(self) -> Storable:
        """Declare that text must not contain NUL, and how long a key may be."""
        options = {"sink": self.name, "columns": list(self.key_columns), "most_bytes": self.longest_key}
        return Storable("PostgreSQL", nul=False, checks=(RowCheck("tidemark.providers.postgres.long_keys", options),))

    @property
    def target(self) -> str:
        return f"connection {self.connection}, table {self.table}"

    def tables(self) -> set[str]:
        """Return the tables that the sink writes, with their schema."""
        return {self.table}

    def meets(self, other: SinkSettings) -> bool:
        if not isinstance(other, TableSettings) or other.connection != self.connection:
            return False
        return bool(self.tables() & other.tables())

    def order(self) -> dict[str, Any]:
        return {"connection": self.connection, "table": self.table}

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        del pipeline_name, topic
        return f"connection {self.connection}, table {DEAD_LETTERS if when is None else self.table}"
