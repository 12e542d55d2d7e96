"""``sinks: [{files: ..}]``."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictBool, StrictInt, ValidationInfo, field_validator, model_validator

from tidemark.config import values
from tidemark.config.base import Name, Root, Size, wrong_at
from tidemark.config.s3 import S3Settings, refuse_keys_without_store
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.errors import ConfigurationError
from tidemark.extras import EXTRAS, problem_with_extra
from tidemark.paths import Layout, dead_letter_folder, is_remote, one_lies_in_the_other
from tidemark.sinks.settings import MAX_FILE_BYTES, SinkSettings
from tidemark.sinks.storable_names import StorableNames
from tidemark.text import with_nearest

LONGEST_NAME = 255  # bytes of a folder's name; a topic's own name never exceeds it, even percent-encoded


class FileFormat(StrEnum):
    PARQUET = "parquet"
    JSONL = "jsonl"
    AVRO = "avro"


class Compression(StrEnum):
    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    DEFLATE = "deflate"
    NONE = "none"


# The first of each format is the default: most engines read it, and read it fast. Spark's JSON reader cannot read zstd.
COMPRESSIONS: dict[FileFormat, tuple[Compression, ...]] = {
    FileFormat.PARQUET: (Compression.ZSTD, Compression.SNAPPY, Compression.GZIP, Compression.NONE),
    FileFormat.JSONL: (Compression.GZIP, Compression.ZSTD, Compression.NONE),
    FileFormat.AVRO: (Compression.DEFLATE, Compression.NONE),
}


_SORTABLE_PLACES = ("_topic", "_partition", "_offset", "_timestamp", "_key")


class Settings(SinkSettings):
    """Files of a data lake, in folders by event time; ``root`` is absolute after loading."""

    kind = "files"

    name: Name = Field(
        default="files",
        description="Its name, unique in the pipeline; [a command](operations.md#sinks-come-and-go) changes it.",
    )
    root: Root = Field(
        description="The lake: a folder, below `TIDEMARK_HOME` when it is relative, or `s3://bucket/prefix`, or a "
        "[container of Azure](providers/azure.md), of one database. Two sinks of one pipeline may not share it.",
        examples=["lake", "/data/lake", "s3://bucket/prefix"],
    )
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="For a store: the id of an Airflow connection, for `s3://` of type `aws`. Without it boto3 looks "
        "for keys: environment, profile, the machine's role.",
    )
    s3: S3Settings = Field(default=S3Settings(), description="How to talk to the store of an s3:// root.")
    layout: Annotated[str, AfterValidator(values.layout)] = Field(
        default="raw/{stream}/%Y/%m/%d/%H",
        description="Folders below the root, from coarse to fine: `{stream}`, the topic, must be there, `{pipeline}` "
        "may; `%Y` `%m` `%d` `%H` are the event time in UTC. None may start with `_` or a dot.",
    )
    format: FileFormat = Field(
        default=FileFormat.PARQUET, description="The format of the files ([JSON lines and Avro](#json-lines-and-avro))."
    )
    compression: Compression | None = Field(
        default=None,
        validate_default=True,
        description="Parquet: `zstd` (the default), `snappy`, `gzip`, `none`. JSON lines: `gzip` (the default), "
        "`zstd`, `none`. Avro: `deflate` (the default), `none`.",
    )
    max_objects: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        default=10_000,
        description="Objects of one manifest, at most. With more it is refused: use a coarser layout or larger slices.",
    )

    max_file_rows: Annotated[StrictInt, Field(ge=1, le=100_000_000)] = Field(
        default=5_000_000, description="Rows of one file, at most."
    )
    max_file_bytes: Size = MAX_FILE_BYTES
    sort_by: tuple[str, ...] = Field(
        default=(),
        description="Rows are sorted by these columns, ascending, nulls last, within each group of rows written at "
        "once (a row group), not across groups and files.",
        examples=[["carrier", "_timestamp"]],
    )
    success_files: StrictBool = Field(
        default=False,
        description="Whether the folder of each complete hour gets a file [`_SUCCESS`](operations.md#hours). Needs a "
        "layout with `%H`, no other pipeline in these folders, and in a bucket `If-Match`.",
    )
    shared_with: tuple[Name, ...] = Field(
        default=(),
        description="Pipelines that may write the same topics into the same folders; else `plan` refuses the second "
        "one. One of the two files must name the other.",
        examples=[["flights_again"]],
    )

    @field_validator("success_files")
    @classmethod
    def _folders_of_hours(cls, success_files: bool, info: ValidationInfo) -> bool:
        if success_files and "layout" in info.data and Layout(info.data["layout"]).finest != "hour":
            raise wrong("needs a folder for each hour: a layout with %H")
        return success_files

    @field_validator("format")
    @classmethod
    def _installed(cls, format: FileFormat) -> FileFormat:  # noqa: A002 -- the name of the key
        if format in EXTRAS and (problem := problem_with_extra(format)):
            raise wrong(problem)
        return format

    @model_validator(mode="after")
    def _shared_folders_have_no_success_files(self) -> Self:
        if self.success_files and self.shared_with:
            raise wrong_at(
                "success_files",
                "says when an hour is complete, and in a folder that others write into (shared_with) no pipeline knows "
                "that; write success_files: false, or leave shared_with out and give the sink a root or layout of its "
                "own",
            )
        return self

    @model_validator(mode="after")
    def _bucket_keys_need_a_bucket(self) -> Self:
        refuse_keys_without_store(self, self.root, "root")
        return self

    @field_validator("compression")
    @classmethod
    def _fits_the_format(cls, compression: Compression | None, info: ValidationInfo) -> Compression | None:
        if "format" not in info.data:
            return compression
        fitting = COMPRESSIONS[info.data["format"]]
        if compression is not None and compression not in fitting:
            raise wrong(
                f"{compression} is not allowed with format {info.data['format']}; allowed: {', '.join(fitting)}"
            )
        return compression or fitting[0]

    @property
    def target(self) -> str:
        return self.root

    def own_folder(self, pipeline_name: str) -> str:
        del pipeline_name  # several pipelines may write to one lake
        return self.root

    def meets_target(self, target: str) -> bool:
        return one_lies_in_the_other(self.root, target)

    def decides_output(self) -> str:
        exclude = {"root", "name", "connection", "s3", "max_objects", "shared_with", "success_files"}
        if self.compression is COMPRESSIONS[self.format][0]:
            exclude.add("compression")
        return self.model_dump_json(exclude_defaults=True, exclude=exclude)

    def store_settings(self) -> dict[str, Any]:
        """Return the settings to access the store, without secrets; empty for a folder."""
        return self.s3.access(self.connection)

    def order(self) -> dict[str, Any]:
        return {
            "layout": self.layout,
            "format": self.format.value,
            "compression": str(self.compression),
            "max_objects": self.max_objects,
            "max_file_rows": self.max_file_rows,
            "max_file_bytes": self.max_file_bytes,
            "sort_by": list(self.sort_by),
            **({"store": self.store_settings()} if is_remote(self.root) else {}),
        }

    def storable_names(self) -> StorableNames:
        """Reserve the names in folders such as ``day=2024-05-01``: readers make columns of them, which replace columns
        of that name in the files."""
        named = {part.partition("=")[0] for part in self.layout.split("/") if "=" in part}
        return StorableNames(
            reserved={name: f"the layout has folders {name}=.., which readers take for that column" for name in named}
        )

    def problem_with(self, rows: RowSettings) -> str | None:
        if problem := self._problem_with_sort_by(rows.field_types()):
            return problem
        if self.format is FileFormat.PARQUET:
            return None
        # Imported late: it needs pyarrow, which the check of Parquet files does without.
        from tidemark.sinks.formats.base import open_format

        try:
            open_format(self.format, str(self.compression)).check(rows.arrow_schema())
        except ConfigurationError as error:
            return f"may not have format {self.format}: {error.what}"
        return None

    def _problem_with_sort_by(self, types: Mapping[str, str]) -> str | None:
        if len(set(self.sort_by)) < len(self.sort_by):
            return "must name each column of sort_by once"
        for column in self.sort_by:
            if column not in {*types, *_SORTABLE_PLACES}:
                return with_nearest(
                    f"has no column {column} to sort by", column, [*types, *_SORTABLE_PLACES], listed=True
                )
            if types.get(column, "").startswith(("list", "struct", "map")):
                return f"may not sort by {column}: it is {types[column]}"
        return None

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        folder = dead_letter_folder(topic) if when is None else Layout(self.layout).folder(pipeline_name, topic, when)
        return f"{self.root}/{folder}"

    def folders_of(self, pipeline_name: str, topic: str) -> str:
        return f"{self.root}/{Layout(self.layout).folders(pipeline_name, topic)}"

    def problem_with_topic(self, pipeline_name: str, topic: str) -> str | None:
        if is_remote(self.root):
            return None
        folder = Layout(self.layout).folder(pipeline_name, topic, datetime.now(UTC))
        longest = max(map(len, folder.split("/")))
        if longest <= LONGEST_NAME:
            return None
        named = f"its layout gives topic {topic} a folder whose name has {longest} bytes"
        return f"{named}, and file systems take at most {LONGEST_NAME}"

    def sharing(self) -> tuple[str, ...]:
        return self.shared_with

    def shows_hours(self) -> bool:
        return self.success_files

    def folders(self) -> set[str]:
        return set() if is_remote(self.root) else {self.root}
