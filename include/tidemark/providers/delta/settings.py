"""``sinks: [{delta: ..}]``."""

from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, StrictBool, StrictInt, field_validator, model_validator

from tidemark.config import values
from tidemark.config.base import Name, Root, Size, wrong_at
from tidemark.config.s3 import S3Settings, refuse_keys_without_store
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.paths import is_remote, one_lies_in_the_other
from tidemark.providers.tables.keyed_settings import KeyedSettings
from tidemark.sinks.settings import MAX_FILE_BYTES, SinkSettings
from tidemark.sinks.storable_names import StorableNames

_UNFIT: Final = r"[ ,;{}()\n\t=]"  # characters in names that Spark's Delta refuses
_UNFIT_TYPES: Final = ("time32", "time64", "duration", "halffloat", "decimal256", "timestamp[ns")
TARGET: Final = "Delta table "  # stands before the location: readers follow the log, so the target is no folder


class Settings(KeyedSettings, SinkSettings):
    """A Delta table with all rows, or with one row per key. Each manifest is one commit.

    ``location`` is absolute after loading.
    """

    kind = "delta"
    output_keys = frozenset({"key", "order_by"})
    names_files = True

    name: Name = Field(default="delta", description="Name of this sink, unique in the pipeline.")
    location: Root = Field(
        description="Folder of the table, or an address such as s3://bucket/prefix; a relative folder lies below "
        "TIDEMARK_HOME.",
        examples=["tables/prices", "s3://bucket/tables/prices"],
    )
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="Id of the Airflow connection of the store: type aws for s3://, wasb for abfss://. Without it, "
        "keys come from where that store's own client finds them.",
    )
    s3: S3Settings = Field(default=S3Settings(), description="How to talk to the store of an s3:// location.")
    buckets: Annotated[StrictInt, Field(ge=1, le=4_096)] = Field(
        default=16,
        description="With key: the partitions that keys are spread over, a power of 2. A manifest writes those again "
        "that it has a newer row of. It cannot be changed later.",
    )
    auto_create: StrictBool = Field(default=False, description="Whether to create the table and missing columns.")
    max_objects: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        default=10_000, description="Files that one task may make."
    )
    max_file_bytes: Size = MAX_FILE_BYTES

    @field_validator("buckets")
    @classmethod
    def _power_of_two(cls, buckets: int) -> int:
        if buckets & (buckets - 1):
            raise wrong("must be a power of 2, such as 16 or 64")
        return buckets

    @model_validator(mode="after")
    def _buckets_of_a_key(self) -> Self:
        if "buckets" in self.model_fields_set and not self.key:
            raise wrong_at("buckets", "needs key: the columns that name a row")
        return self

    @model_validator(mode="after")
    def _bucket_keys_need_a_bucket(self) -> Self:
        refuse_keys_without_store(self, self.location, "location")
        return self

    @property
    def target(self) -> str:
        return f"{TARGET}{self.location}"

    def own_folder(self, pipeline_name: str) -> str:
        del pipeline_name  # the location alone says where the table is
        return self.location

    def meets_target(self, target: str) -> bool:
        return one_lies_in_the_other(self.location, target.removeprefix(TARGET))

    def store_settings(self) -> dict[str, Any]:
        """Return the access to the store, without secrets; empty for a folder."""
        return self.s3.access(self.connection)

    def order(self) -> dict[str, Any]:
        return {
            "max_objects": self.max_objects,
            "max_file_bytes": self.max_file_bytes,
            **({"store": self.store_settings()} if is_remote(self.location) else {}),
        }

    def storable_names(self) -> StorableNames:
        """Return the names that the table can store.

        Other names need column mapping. Engines address a nested field by its path with dots.
        """
        return StorableNames(
            unfit=_UNFIT, unfit_why="a name with a space or one of ,;{}()= needs column mapping", joined_paths=True
        )

    def problem_with(self, rows: RowSettings) -> str | None:
        for name, kind in rows.field_types().items():
            if kind.startswith(_UNFIT_TYPES):
                return f"may not have the column {name}: Delta has no type for {kind}"
        return self.problem_with_keyed(rows) if self.key else None

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        del pipeline_name, topic
        return f"{self.location}/_dead_letters" if when is None else self.target

    def folders(self) -> set[str]:
        return set() if is_remote(self.location) else {self.location}
