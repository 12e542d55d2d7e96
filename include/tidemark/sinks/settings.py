"""The keys that every kind of sink has in its entry of ``sinks`` in a pipeline file."""

from abc import abstractmethod
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Self

import pyarrow as pa
from pydantic import Field

from tidemark.config.base import Name, OneKind, Section
from tidemark.decoders.pins import Pins
from tidemark.decoders.settings import RowSettings
from tidemark.kinds import SINKS
from tidemark.model.address import Address
from tidemark.model.storable import Storable
from tidemark.paths import one_lies_in_the_other
from tidemark.sinks.storable_names import StorableNames, problem_with_names

MAX_FILE_BYTES: Any = Field(
    default=128 * 2**20,
    description="Bytes of one file, about: it is closed when another group of rows (256 x 1024, or 40 MiB in "
    "memory) would not fit.",
    json_schema_extra={"default": "128MiB"},
)


class SinkSettings(Section):
    """The settings of one sink. ``kind`` is its name in the registry.

    ``names_files``: the target names the files with its rows to readers, so that the sink can list them. ``in_order``:
    manifests are put one after the other (``lifecycle/turns.py``), as a sink that appends needs it. ``output_keys``:
    the keys that decide the rows of this sink, not their place. ``connection_keys``: the keys with the id of an Airflow
    connection.
    """

    kind: ClassVar[str]
    names_files: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    output_keys: ClassVar[frozenset[str]] = frozenset()
    connection_keys: ClassVar[tuple[str, ...]] = ("connection",)

    name: Name = Field(description="Name of this sink, unique in the pipeline.")

    @property
    @abstractmethod
    def target(self) -> str:
        """Return the place of its output: a text for the database and for messages. No secrets."""

    def meets(self, other: "SinkSettings") -> bool:
        """Return whether the two sinks would write to the same place."""
        return other.kind == self.kind and self.meets_target(other.target)

    def meets_target(self, target: str) -> bool:
        """Return whether this sink would write where another one, known only by its ``target``, has its output."""
        return self.target == target

    def decides_output(self) -> str:
        """Return the settings that decide the rows of this sink, not their place, as a text for the fingerprint."""
        return self.model_dump_json(exclude_defaults=True, include={*self.output_keys}) if self.output_keys else ""

    def row_order(self) -> str | None:
        """Return the column that decides which of two rows of a key is newer; None if the offset decides, or if rows
        have no key.

        It must not change: a row that was dropped as older by one column might be the newer one by another.
        """
        return None

    @property
    def record_key(self) -> tuple[str, ...] | None:
        """Return the columns of the record's key, if that is the key of the table; empty while they are not known."""
        return None

    def with_record_key(self, columns: tuple[str, ...]) -> Self:
        """Return these settings with the columns of the record's key."""
        del columns
        return self

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return the settings that Spark executors need for this sink, without ``name`` and ``kind``, and without
        secrets.
        """

    def problem_with_rows(self, rows: RowSettings, columns: pa.Schema) -> str | None:
        """Return why this sink cannot store these rows; None if it can. The text continues a message that names the
        sink, or its place in the pipeline file.

        ``columns``: the columns of the rows. The caller computes them once, because that takes time.
        """
        return problem_with_names(self.storable_names(), columns) or self.problem_with(rows)

    def storable_names(self) -> StorableNames:
        """Declare the names of columns, and of fields inside them, that the target can store."""
        return StorableNames()

    @abstractmethod
    def problem_with(self, rows: RowSettings) -> str | None:
        """Return why this sink cannot store these rows for another reason than names, as a sentence; None if it can."""

    @abstractmethod
    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        """Return the place of a row with this event time, or of a dead letter if ``when`` is None."""

    def folders_of(self, pipeline_name: str, topic: str) -> str:
        """Return the pattern of the folders in which readers find a topic, with its codes of times; empty if the sink
        has no folders."""
        del pipeline_name, topic
        return ""

    def problem_with_topic(self, pipeline_name: str, topic: str) -> str | None:
        """Return why the sink has no place for the rows of a topic, as a sentence; None if it has one."""
        del pipeline_name, topic
        return None

    def sharing(self) -> tuple[str, ...]:
        """Return the pipelines that may write the same topics into these folders."""
        return ()

    def shows_hours(self) -> bool:
        """Return whether files in these folders show which event hours are complete."""
        return False

    def uses_registry(self) -> bool:
        """Return whether a schema registry has the schema of its output."""
        return False

    def pinned(self, rows: RowSettings, pins: Pins) -> Self:
        """Return these settings with the registry's schema that fits the rows; raises the errors of registries."""
        del rows, pins
        return self

    def storable(self) -> Storable:
        """Declare the values that the target can store; a row with another value is a dead letter for all sinks."""
        return Storable()

    def writes_topics(self) -> tuple[Address | None, tuple[str, ...]]:
        """Return the address of the topics that it writes to, and their names; none for most kinds."""
        return None, ()

    def connections(self) -> set[str]:
        """Return the ids of the Airflow connections that these settings name."""
        return {conn_id for key in self.connection_keys if (conn_id := getattr(self, key, None))}

    def own_folder(self, pipeline_name: str) -> str | None:
        """Return the folder, or bucket and prefix, where no other sink of the pipeline may write; None without one."""
        del pipeline_name
        return None

    def claimed_folder(self, pipeline_name: str) -> str | None:
        """Return the folder that must not lie in the folder of another sink, nor contain one; None without one."""
        return self.own_folder(pipeline_name)

    def folders(self) -> set[str]:
        """Return the folders that executors and this process must share."""
        return set()


def nested_folders(
    sink: SinkSettings, pipeline_name: str, other: SinkSettings, other_pipeline: str
) -> tuple[str, str] | None:
    """Return the folders of two sinks if one lies in the other, or if two kinds have the same folder; else None."""
    own, others = sink.claimed_folder(pipeline_name), other.claimed_folder(other_pipeline)
    if own is None or others is None or not one_lies_in_the_other(own, others):
        return None
    return (own, others) if own != others or sink.kind != other.kind else None


# Kinds of former releases, and what to write instead.
REMOVED: Final = {
    "dynamodb": "DynamoDB has a copy of totals now, and PostgreSQL adds up; write a sink totals with connection, table "
    "and aggregate, and below it served_in: {dynamodb: {table: ..}}; see docs/configuration.md"
}

SinkEntry = Annotated[SinkSettings, OneKind(SINKS, removed=REMOVED)]
