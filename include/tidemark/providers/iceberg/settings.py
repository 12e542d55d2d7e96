"""``sinks: [{iceberg: ..}]``."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictBool, StrictInt, ValidationInfo, field_validator, model_validator

from tidemark.config import values
from tidemark.config.base import LoadContext, Name, Size, wrong_at
from tidemark.config.s3 import S3Settings
from tidemark.config.values import wrong
from tidemark.decoders.settings import NULLABLE, RowSettings
from tidemark.extras import absent_libraries, command
from tidemark.paths import is_remote
from tidemark.providers.iceberg.partitioning import Term
from tidemark.providers.tables.column_names import EVENT_TIME, TOPIC_PARTITION
from tidemark.providers.tables.keyed_settings import KeyedSettings
from tidemark.sinks.settings import MAX_FILE_BYTES, SinkSettings
from tidemark.sinks.storable_names import StorableNames
from tidemark.text import with_nearest

NEVER_NULL = {"_topic": "string", TOPIC_PARTITION: "int32", "_offset": "int64", EVENT_TIME: "timestamp[us, tz=UTC]"}
_TABLE = r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62}){1,4}"
_SECRET = re.compile(r"password|secret|token|credential|access-?key|uri$", re.IGNORECASE)


class CatalogKind(StrEnum):
    SQL = "sql"
    REST = "rest"
    GLUE = "glue"
    HIVE = "hive"


def _table(value: str) -> str:
    if not re.fullmatch(_TABLE, value):
        raise wrong("must be a namespace and a table such as sales.prices: lower-case letters, digits and _")
    return value


def _term(value: str) -> str:
    term = Term.parse(value)
    if term is None:
        raise wrong("must be a column, or year|month|day|hour(COLUMN), bucket(N, COLUMN) or truncate(N, COLUMN)")
    return str(term)


class Settings(KeyedSettings, SinkSettings):
    """An Iceberg table with all rows, or with one row per key. Each manifest is one snapshot.

    ``warehouse`` is absolute after loading.
    """

    kind = "iceberg"
    output_keys = frozenset({"partition_by", "key", "order_by"})
    names_files = True
    connection_keys = ("connection", "store_connection")

    name: Name = Field(default="iceberg", description="Name of this sink, unique in the pipeline.")
    catalog: CatalogKind = Field(default=CatalogKind.SQL, description="Kind of the catalog that knows the table.")
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        validate_default=True,
        description="Id of the Airflow connection of the catalog; only glue needs none.",
        examples=["lakehouse"],
    )
    catalog_name: Name = Field(default="tidemark", description="Name of the catalog; a SQL catalog holds several.")
    table: Annotated[str, AfterValidator(_table)] = Field(
        description="The table, with its namespace.", examples=["sales.prices"]
    )
    warehouse: Annotated[str, AfterValidator(values.root)] | None = Field(
        default=None,
        description="Folder below which the catalog creates tables, or an address such as s3://bucket/prefix; a "
        "relative folder lies below TIDEMARK_HOME. A REST catalog has its own, or knows it by name.",
        examples=["warehouse", "s3://bucket/warehouse"],
    )
    store_connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="Id of the Airflow connection of the store: type aws for s3://, wasb for abfss://. Without it, "
        "keys come from where that store's own client finds them.",
    )
    s3: S3Settings = Field(default=S3Settings(), description="How to talk to the store of a table in s3://.")
    options: dict[str, str] = Field(
        default={},
        description="Further properties of PyIceberg's catalog; secrets belong into the connection.",
        examples=[{"prefix": "lake"}],
    )
    partition_by: tuple[Annotated[str, AfterValidator(_term)], ...] = Field(
        default=(f"day({EVENT_TIME})",),
        description="Hidden partitions: columns, year|month|day|hour(COLUMN), bucket(N, COLUMN), truncate(N, COLUMN). "
        "With key only buckets of its columns, by default none.",
        examples=[["day(_event_time)", "bucket(16, carrier)"]],
    )
    auto_create: StrictBool = Field(default=False, description="Whether to create the table and missing columns.")
    keep_snapshots: Annotated[StrictInt, Field(ge=1, le=10_000)] | None = Field(
        default=100, description="The newest snapshots to keep; null leaves expiring them to others."
    )
    max_objects: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        default=10_000, description="Files that one manifest may have."
    )
    max_file_bytes: Size = MAX_FILE_BYTES

    @field_validator("connection")
    @classmethod
    def _needed(cls, connection: str | None, info: ValidationInfo) -> str | None:
        if connection is None and info.data.get("catalog") not in (CatalogKind.GLUE, None):
            raise wrong(f"is needed for a catalog of kind {info.data['catalog']}")
        return connection

    @field_validator("warehouse")
    @classmethod
    def _absolute(cls, warehouse: str | None, info: ValidationInfo) -> str | None:
        if warehouse is None or is_remote(warehouse) or info.data.get("catalog") is CatalogKind.REST:
            return warehouse
        return os.path.normpath(LoadContext.of(info).home / warehouse)

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, str]) -> dict[str, str]:
        for key in options:
            if _SECRET.search(key):
                raise wrong_at(key, "belongs into the connection: a pipeline file holds no address and no secret")
        return options

    @field_validator("partition_by")
    @classmethod
    def _once(cls, partition_by: tuple[str, ...]) -> tuple[str, ...]:
        names = Counter(term.name for term in _parsed(partition_by))
        for name, count in names.items():
            if count > 1:
                raise wrong(f"gives two partitions the name {name}")
        return partition_by

    @model_validator(mode="after")
    def _installed(self) -> Self:
        if self.catalog is CatalogKind.HIVE and (absent := absent_libraries(["thrift"])):
            raise wrong(f"{absent}; install it: {command('hive')}")
        return self

    @model_validator(mode="after")
    def _one_partition_of_a_key(self) -> Self:
        if self.record_key is not None and self.terms:
            raise wrong_at(
                "partition_by",
                "needs a key that lists its columns, as a partition may have no others: leave partition_by out, or "
                "list them in place of record_key",
            )
        for term in self.terms if self.key else ():
            if term.column not in self.key or not term.is_bucket:
                raise wrong_at(
                    "partition_by",
                    f"may not have {term} where the table has a key: rows of one key must lie in one partition; write "
                    f"bucket(16, COLUMN) of a whole number or text in the key ({', '.join(self.key)}), or leave it out",
                )
        return self

    @model_validator(mode="after")
    def _warehouse_of_a_catalog(self) -> Self:
        if self.warehouse is None and self.catalog is CatalogKind.SQL:
            raise wrong_at("warehouse", "is needed for a catalog of kind sql: it says where tables lie")
        return self

    @property
    def terms(self) -> tuple[Term, ...]:
        if self.key and "partition_by" not in self.model_fields_set:
            return ()
        return _parsed(self.partition_by)

    @property
    def target(self) -> str:
        through = f"connection {self.connection}, " if self.connection else ""
        return f"{through}{self.catalog} catalog {self.catalog_name}, table {self.table}"

    def claimed_folder(self, pipeline_name: str) -> str | None:
        """Return the folder in which a SQL catalog creates the table; None if another kind of catalog chooses the
        place."""
        del pipeline_name
        if self.warehouse is None or self.catalog is CatalogKind.REST:
            return None
        return f"{self.warehouse}/{self.table.replace('.', '/')}"

    def store_settings(self) -> dict[str, Any]:
        """Return the access to the store of a table, without secrets."""
        return self.s3.access(self.store_connection)

    def order(self) -> dict[str, Any]:
        return {"store": self.store_settings(), "max_objects": self.max_objects, "max_file_bytes": self.max_file_bytes}

    def storable_names(self) -> StorableNames:
        """Return the names that the table can store.

        Iceberg finds a nested field by its path with dots, and a partition must not have the name of a column.
        """
        partitions = {
            term.name: f"partition_by gives that name to {term}, and a partition may not have the name of a column"
            for term in self.terms
            if term.name != term.column
        }
        return StorableNames(reserved=partitions, joined_paths=True)

    def problem_with(self, rows: RowSettings) -> str | None:
        types = rows.field_types()
        if self.key and (problem := self.problem_with_keyed(rows)):
            return problem
        for term in self.terms:
            known: Mapping[str, str] = {**types, **NEVER_NULL}
            if term.column not in known:
                return with_nearest(f"has no column {term.column} for a partition", term.column, known, listed=True)
            if term.column not in {*NEVER_NULL, *rows.never_null()}:
                return f"may not be partitioned by {term.column}: {NULLABLE}"
            if not term.fits(known[term.column]):
                return f"may not be partitioned by {term}: {term.column} is {known[term.column]}"
        return None

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        del pipeline_name, topic
        return f"{self.target}, folder _dead_letters" if when is None else self.target

    def folders(self) -> set[str]:
        return {self.warehouse} if self.warehouse and self.warehouse.startswith("/") else set()


def _parsed(partition_by: tuple[str, ...]) -> tuple[Term, ...]:
    terms = [Term.parse(text) for text in partition_by]
    return tuple(term for term in terms if term is not None)
