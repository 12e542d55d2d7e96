"""Where rows go: what an entry of ``sinks`` may say, one model per kind."""

import os
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tidemark import notation
from tidemark.errors import ConfigurationError
from tidemark.notation import wrong
from tidemark.objectstore import is_s3
from tidemark.record_settings import JsonDecode, RawDecode
from tidemark.sections import Name, Section, Surroundings, wrong_at
from tidemark.suggestion import nearest

PLACE_COLUMNS = ("_topic", "_partition", "_offset")  # of a record in Kafka: never null, and unique together
KAFKA_TIMESTAMP = "_timestamp"


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


# Of each format, the default first: what most engines read, and read well. Spark's JSON reader knows no zstd.
COMPRESSIONS: dict[FileFormat, tuple[Compression, ...]] = {
    FileFormat.PARQUET: (Compression.ZSTD, Compression.SNAPPY, Compression.GZIP, Compression.NONE),
    FileFormat.JSONL: (Compression.GZIP, Compression.ZSTD, Compression.NONE),
    FileFormat.AVRO: (Compression.DEFLATE, Compression.NONE),
}


class SinkKind(StrEnum):
    FILES = "files"
    POSTGRES = "postgres"


class ServerSideEncryption(StrEnum):
    """What the store encrypts objects with; without it, the bucket's own default."""

    AES256 = "AES256"
    KMS = "aws:kms"


class S3Settings(Section):
    """How to talk to the store of an ``s3://`` root; None leaves it to the connection, then to boto3's own sources."""

    endpoint_url: Annotated[str, AfterValidator(notation.endpoint)] | None = Field(
        default=None, description="Address of a store that is not AWS.", examples=["https://minio:9000"]
    )
    region: str | None = Field(default=None, description="Region of the bucket.", examples=["eu-central-1"])
    path_style: StrictBool | None = Field(
        default=None, description="Whether the bucket stands in the path; it does when there is an endpoint_url."
    )
    server_side_encryption: ServerSideEncryption | None = Field(
        default=None, description="What the store encrypts objects with; else the bucket's default."
    )
    kms_key_id: str | None = Field(default=None, description="Key for aws:kms; else the account's own.")

    @field_validator("kms_key_id")
    @classmethod
    def _for_kms(cls, key: str | None, info: ValidationInfo) -> str | None:
        if key is not None and info.data.get("server_side_encryption") is not ServerSideEncryption.KMS:
            raise wrong("needs server_side_encryption: aws:kms")
        return key


class FilesSinkConfig(Section):
    """Files of a data lake, in folders by event time; ``root`` is absolute once the file is loaded."""

    name: Name = Field(default="files", description="Name of this sink, unique in the pipeline.")
    root: Annotated[str, AfterValidator(notation.root)] = Field(
        description="Folder of the lake, or s3://bucket/prefix; a relative folder lies below TIDEMARK_HOME.",
        examples=["lake", "/data/lake", "s3://bucket/prefix"],
    )
    connection: Annotated[str, AfterValidator(notation.connection_id)] | None = Field(
        default=None, description="Id of an Airflow connection of type aws, for s3://; else boto3's own sources."
    )
    s3: S3Settings = Field(default=S3Settings(), description="How to talk to the store of an s3:// root.")
    layout: Annotated[str, AfterValidator(notation.layout)] = Field(
        default="raw/{stream}/%Y/%m/%d/%H", description="Folders below the root, by topic and event time in UTC."
    )
    format: FileFormat = Field(default=FileFormat.PARQUET, description="Format of the files.")
    compression: Compression | None = Field(
        default=None,
        validate_default=True,
        description="Compression of the files: by default zstd for parquet, gzip for jsonl, deflate for avro.",
    )
    max_objects: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        default=10_000, description="Objects that one manifest may have."
    )

    @field_validator("root")
    @classmethod
    def _absolute(cls, root: str, info: ValidationInfo) -> str:
        return root if is_s3(root) else os.path.normpath(Surroundings.of(info).home / root)

    @model_validator(mode="after")
    def _settings_of_a_bucket(self) -> Self:
        for key in ("connection", "s3"):
            if key in self.model_fields_set and not is_s3(self.root):
                raise wrong_at(key, "is for a root such as s3://bucket/prefix; this one is a folder")
        return self

    @field_validator("compression")
    @classmethod
    def _fits_the_format(cls, compression: Compression | None, info: ValidationInfo) -> Compression | None:
        if "format" not in info.data:
            return compression
        fitting = COMPRESSIONS[info.data["format"]]
        if compression is not None and compression not in fitting:
            raise wrong(f"{compression} does not go with format {info.data['format']}; allowed: {_listed(fitting)}")
        return compression or fitting[0]

    @property
    def kind(self) -> SinkKind:
        return SinkKind.FILES

    def meets(self, other: "SinkConfig") -> bool:
        """Whether two sinks would write into one another's target."""
        if not isinstance(other, FilesSinkConfig):
            return False
        mine, theirs = PurePath(self.root), PurePath(other.root)
        return mine.is_relative_to(theirs) or theirs.is_relative_to(mine)

    def decides_output(self) -> str:
        """What of this sink decides rows and files, for the fingerprint; where they lie does not."""
        where = {"root", "name", "connection", "s3", "max_objects"}
        default = {"compression"} if self.compression is COMPRESSIONS[self.format][0] else set()
        return self.model_dump_json(exclude_defaults=True, exclude=where | default)

    def store_settings(self) -> dict[str, Any]:
        """How to reach the store, without any secret: empty for a folder."""
        given = self.s3.model_dump(mode="json", exclude_none=True)
        return {**given, **({"connection": self.connection} if self.connection else {})}

    def order(self) -> dict[str, Any]:
        """What the executors must know beside name, kind and root."""
        return {
            "layout": self.layout,
            "format": self.format.value,
            "compression": str(self.compression),
            "max_objects": self.max_objects,
            **({"s3": self.store_settings()} if is_s3(self.root) else {}),
        }

    def why_not(self, decode: JsonDecode | RawDecode) -> str:
        """Why files of this format cannot hold what is decoded; empty when they can."""
        if self.format is FileFormat.PARQUET:
            return ""
        # Late, because they bring pyarrow, and a pipeline of Parquet files has no use for it.
        from tidemark.decoders import decoder
        from tidemark.sinks.formats import open_format

        try:
            open_format(self.format, str(self.compression)).check(decoder(decode.order()).schema)
        except ConfigurationError as problem:
            return f"may not have format {self.format}: {problem.what}"
        return ""


LONGEST_COLUMN = 63  # bytes of a name in PostgreSQL, which cuts longer ones short without a word


class PostgresSinkConfig(Section):
    """A PostgreSQL table with one row per key: the newest version of it. Deleted keys stay, as marked rows."""

    name: Name = Field(default="postgres", description="Name of this sink, unique in the pipeline.")
    connection: Annotated[str, AfterValidator(notation.connection_id)] = Field(
        description="Id of an Airflow connection.", examples=["warehouse"]
    )
    table: Annotated[str, AfterValidator(notation.table)] = Field(
        description="The table, with its schema unless that is public.", examples=["prices", "sales.prices"]
    )
    key: tuple[str, ...] = Field(
        description="Columns that name a row; none of them may be null.",
        examples=[["product_id", "location_id"]],
        json_schema_extra={"minItems": 1},
    )
    order_by: str | None = Field(
        default=None, description="The column whose greatest value is the newest version; else the later offset is."
    )
    auto_create: StrictBool = Field(default=False, description="Whether to create the table and missing columns.")

    @field_validator("key")
    @classmethod
    def _unique_key(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if not key:
            raise wrong("must have at least one entry")
        if len(set(key)) < len(key):
            raise wrong("must name each column once")
        return key

    @property
    def kind(self) -> SinkKind:
        return SinkKind.POSTGRES

    def meets(self, other: "SinkConfig") -> bool:
        """Whether two sinks would write into one another's target."""
        return isinstance(other, PostgresSinkConfig) and (self.connection, self.table) == (
            other.connection,
            other.table,
        )

    def decides_output(self) -> str:
        """What of this sink decides rows, for the fingerprint; where they lie does not."""
        return self.model_dump_json(exclude_defaults=True, include={"key", "order_by"})

    def order(self) -> dict[str, Any]:
        """What the executors must know beside name, kind and root."""
        return {"connection": self.connection, "table": self.table}

    def why_not(self, decode: JsonDecode | RawDecode) -> str:
        """Why key and ``order_by`` do not fit what is decoded; empty when they do."""
        types = decode.field_types()
        for column in types:
            if "%" in column or len(column.encode()) > LONGEST_COLUMN:
                return f"may not have a column {column[:80]!r}: names of columns have at most 63 bytes, and no %"
        never_null = {*PLACE_COLUMNS, *decode.never_null()}
        for column in self.key:
            if column not in {*types, *PLACE_COLUMNS}:
                close = nearest(column, types)
                return " ".join(f"has no column {column} for its key; {close} allowed: {_listed(types)}".split())
            if column not in never_null:
                return f"may not have {column} in its key: it can be null; say NOT NULL, or list it under required"
            if types.get(column, "").startswith(("list", "struct", "map", "double", "float")):
                return f"may not have {column} in its key: it is {types[column]}"
        if self.order_by in (None, KAFKA_TIMESTAMP):
            return ""
        if self.order_by not in types:
            return f"has no column {self.order_by} to order by; allowed: {_listed([KAFKA_TIMESTAMP, *types])}"
        if self.order_by not in never_null:
            return f"may not order by {self.order_by}: it can be null; say NOT NULL, or list it under required"
        if types[self.order_by].startswith(("list", "struct", "map")):
            return f"may not order by {self.order_by}: it is {types[self.order_by]}"
        if decode.tombstones and self.order_by not in decode.tombstones:
            return (
                f"may not order by {self.order_by}: a tombstone has no such field; write order_by: {KAFKA_TIMESTAMP}, "
                "or leave it out"
            )
        return ""


def _listed(columns: Any) -> str:
    return ", ".join(columns)


SinkConfig = FilesSinkConfig | PostgresSinkConfig


class SinkEntry(Section):
    """One entry of ``sinks`` as it is written: exactly one key, the kind."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    files: FilesSinkConfig | None = Field(default=None, description="Files of a data lake, by event time.")
    postgres: PostgresSinkConfig | None = Field(default=None, description="A PostgreSQL table, one row per key.")

    def settings(self) -> SinkConfig:
        given: list[SinkConfig] = [one for kind in SinkKind if (one := getattr(self, kind)) is not None]
        if len(given) != 1:
            raise wrong(f"must hold one key, the kind of the sink: {', '.join(SinkKind)}")
        return given[0]


def _sink(value: object, info: ValidationInfo) -> SinkConfig:
    if isinstance(value, SinkConfig):
        return value
    return SinkEntry.model_validate(value, context=info.context).settings()


Sink = Annotated[SinkConfig, BeforeValidator(_sink, json_schema_input_type=SinkEntry)]
