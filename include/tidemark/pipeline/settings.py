"""The keys of a pipeline file, with types, bounds and defaults.

    Pipeline
    +-- source: SourceEntry        one key: the kind of source, its settings in ``sources/<kind>/settings.py``
    +-- decode: Decode             ``format`` is the kind, each in ``decoders/<kind>/settings.py``; or a list of such
    +-- transform: TransformEntry, ..  one key each, settings in ``transforms/<kind>/settings.py``
    +-- event_time: EventTimeSettings
    +-- sinks: SinkEntry, ..       one key each: the kind of sink, its settings in ``sinks/<kind>/settings.py``

The files are read by ``pipeline/loader.py``; the only other files that are opened are
those that ``decode``, ``transform`` and ``code`` name.
"""

import json
import re
from collections.abc import Mapping
from datetime import date, timedelta
from enum import StrEnum
from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)

from tidemark.config import values
from tidemark.config.base import DeadLetters, Duration, Name, Root, Schedule, Section, settings_of_kinds, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.settings import DecodeSettings, RowSettings
from tidemark.decoders.topic_settings import DecodeByTopic, RecordSettings, TopicSettings
from tidemark.extras import problem_with_extra
from tidemark.kinds import DECODERS
from tidemark.model.expectations import ExpectationOrder
from tidemark.model.order import OnError, TransformOrder
from tidemark.model.storable import Storable
from tidemark.paths import is_remote
from tidemark.pipeline import each_topic
from tidemark.pipeline.airflow_tasks import AirflowTasks
from tidemark.pipeline.code import CodeFolder
from tidemark.pipeline.event_time import EventTimeSettings, check_field
from tidemark.pipeline.expectations import Expectation, Otherwise, check_expectations_of_file
from tidemark.pipeline.own_output import topic_between
from tidemark.pipeline.rows import check_transforms, rows_for_sinks
from tidemark.pipeline.trigger import Trigger
from tidemark.sinks.settings import SinkEntry, nested_folders
from tidemark.sources.settings import SourceEntry, SourceSettings
from tidemark.text import with_nearest, without_links
from tidemark.transforms.settings import TransformEntry

FORMATS: tuple[type[DecodeSettings], ...] = tuple(settings_of_kinds(DECODERS, DecodeSettings).values())
OF_TOPICS: tuple[type[DecodeSettings], ...] = tuple(
    create_model(f"{kind}_of_topics", __base__=(settings, TopicSettings), __doc__=settings.__doc__)
    for kind, settings in zip(DECODERS, FORMATS, strict=True)
)
if TYPE_CHECKING:
    Decode = RecordSettings
else:
    _Entries = list[Annotated[Union[OF_TOPICS], Field(discriminator="format")]]  # noqa: UP007 - made of the registry
    _ENTRIES = TypeAdapter(_Entries)

    def _decode(value: object, single: ValidatorFunctionWrapHandler, info: ValidationInfo) -> RecordSettings:
        if not isinstance(value, list):
            return single(value)
        if not value:
            raise wrong("must have at least one entry")
        return DecodeByTopic(tuple(_ENTRIES.validate_python(value, context=info.context)))

    _Single = Annotated[Union[FORMATS], Field(discriminator="format")]  # noqa: UP007 - made of the registry
    Decode = Annotated[_Single, WrapValidator(_decode, json_schema_input_type=_Single | _Entries)]


# Its value is the name of a secret of Kubernetes and a key in it, or a path, not what the secret holds.
_NAMES_A_SECRET = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.(?:secretKeyRef|secrets)\.")


def _conf_key(key: str) -> str:
    if not key.startswith("spark."):
        raise wrong("must be a Spark property, which starts with spark.")
    if not _NAMES_A_SECRET.match(key) and (problem := Spark.problem_with_key(key.lower())):
        raise wrong(f"is not allowed: {problem}")
    return key


def _conf_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise wrong("must be text, a number, true or false")


class Engine(StrEnum):
    """The engine that works on a manifest: an application that is submitted for it, whose driver runs here or on the
    cluster, or a Spark Connect server that stays up.
    """

    SUBMIT = "submit"
    CONNECT = "connect"
    CLUSTER = "cluster"


class Spark(Section):
    """The Spark that works on one manifest, and its properties."""

    refused: ClassVar[Mapping[str, str]] = {
        "spark.jars*": "Tidemark brings its own jars",
        "spark.submit.*": "Tidemark submits the application itself",
        "spark.app.*": "the application is named after its manifest",
        "spark.redaction.*": "it keeps secrets out of plans, pages and logs",
        "spark.sql.session.timezone": "everything here is UTC",
        "spark.sql.execution.arrow.max*": "the size of a batch follows from the measured size of a record",
        "spark.*env.airflow_conn*": "properties are seen in process lists; driver and executors look connections up "
        "in their own environment",
        "spark.master": "the Spark connection, or --master, says where it runs",
        "spark.remote": "the connection spark_connect, or TIDEMARK_SPARK_REMOTE, names the server",
        "*password*": "properties are seen in process lists; give secrets by the environment",
        "*secret*": "properties are seen in process lists; give secrets by the environment",
        "*token*": "properties are seen in process lists; give secrets by the environment",
    }

    engine: Engine | None = Field(
        default=None,
        description="An application for each manifest, a server [that stays "
        "up](operations.md#a-spark-that-stays-up), or an application whose driver runs [on the "
        "cluster](clusters.md#the-driver-on-the-cluster). `null`: `connect` where `TIDEMARK_SPARK_REMOTE` names "
        "a server, else `submit`.",
    )
    orders: Root | None = Field(
        default=None,
        description="With `engine: cluster`: a folder or store that the driver can reach too, for orders and receipts.",
        examples=["s3://bucket/orders"],
    )
    orders_connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="The connection of that store, as for [files](#files-a-data-lake).",
    )
    submit: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="With `engine: cluster`: a command in place of `spark-submit`. It gets the driver's arguments, and "
        "returns when the driver has ended or is submitted.",
        examples=[["./emr-step.sh"]],
    )
    parallel_drivers: StrictInt = Field(
        default=16,
        ge=1,
        le=1_000,
        description="With `engine: cluster`: how many drivers the DAG has at work at once, at most. Airflow's "
        "`max_active_tasks` does not count tasks that wait without a slot.",
    )
    parallel_slices: StrictInt = Field(
        default=1,
        ge=1,
        le=64,
        description="How many slices a command works on [at once](operations.md#several-slices-at-once). Refused with "
        "a sink that keeps the order of records (`topic`).",
    )
    records_per_task: StrictInt = Field(
        default=1_000_000,
        ge=1,
        description="A task reads whole partitions, up to about so many records ([large or many "
        "files](operations.md#large-or-many-files)).",
    )
    conf: dict[
        Annotated[str, AfterValidator(_conf_key)],
        Annotated[str, BeforeValidator(_conf_value), WithJsonSchema({"type": ["string", "number", "boolean"]})],
    ] = Field(
        default={},
        description="Properties of the application, such as `spark.executor.memory: 4g`. Secrets, and those that "
        "Tidemark sets, are refused.",
        examples=[{"spark.executor.memory": "4g"}],
    )

    @field_validator("engine")
    @classmethod
    def _installed(cls, engine: Engine | None) -> Engine | None:
        if engine is Engine.CONNECT and (problem := problem_with_extra("connect")):
            raise wrong(problem)
        return engine

    @model_validator(mode="after")
    def _place_of_orders(self) -> "Spark":
        if self.engine is Engine.CLUSTER and self.orders is None:
            raise wrong_at(
                "orders", "is missing: a folder or store that the driver can reach too, such as s3://bucket/orders"
            )
        for key in ("orders", "orders_connection", "submit"):
            if self.engine is not Engine.CLUSTER and getattr(self, key):
                raise wrong_at(key, "is only for engine: cluster")
        if "parallel_drivers" in self.model_fields_set and self.engine is not Engine.CLUSTER:
            raise wrong_at("parallel_drivers", "is only for engine: cluster")
        if self.orders_connection is not None and not is_remote(self.orders or ""):
            raise wrong_at("orders_connection", "is only for orders in a store, not in a folder")
        return self

    def most_drivers(self) -> int | None:
        """Return how many drivers on a cluster may be at work at once; None with another engine."""
        return self.parallel_drivers if self.engine is Engine.CLUSTER else None

    def connections(self) -> set[str]:
        return {self.orders_connection} if self.orders_connection else set()


class Unfinished(StrEnum):
    """The treatment of unfinished manifests of earlier runs. A run names them in any case."""

    RETRY = "retry"
    REPORT = "report"
    FAIL = "fail"


class Pipeline(Section):
    """One pipeline file, checked: schema files are read, roots are absolute, variables replaced."""

    name: Name = Field(
        alias="pipeline",
        description="Its name, and that of its DAG: 1 to 63 lower-case letters, digits, `_`, `-`, a letter first; of "
        "one file only. A new name starts with no history.",
    )
    description: str = Field(default="", description="Airflow shows it.")
    schedule: Schedule | None = Field(
        default=None,
        description="`@hourly`, `@daily`, `@weekly`, `@monthly`, `@quarterly`, `@yearly`, or a cron expression, "
        "such as `*/15 * * * *`. `null`: you or `trigger` start the runs.",
    )
    trigger: Trigger | None = Field(
        default=None,
        description="Runs that [begin when enough records wait](#when-enough-records-wait), beside `schedule` or "
        "without one.",
        examples=[{"lag": 100_000, "at_most_every": "1m", "at_least_every": "1h"}],
    )
    start_date: Annotated[date, BeforeValidator(values.day)] = Field(
        default=date(2024, 1, 1), description="The first day that scheduled runs may cover."
    )
    catchup: StrictBool = Field(
        default=False,
        description="Whether Airflow starts a run for each interval since `start_date`, or for the newest only, which "
        "then reads all.",
    )
    max_active_runs: StrictInt = Field(
        default=1,
        ge=1,
        le=100,
        description="Runs at the same time, at most.",
    )
    retries: StrictInt = Field(default=2, ge=0, le=100, description="How often Airflow tries a failed task again.")
    retry_delay: Duration = Field(
        default=timedelta(seconds=10),
        description="The pause before the first retry, or up to twice as long; later ones grow to "
        "`airflow.max_retry_delay`.",
        json_schema_extra={"default": "10s"},
    )
    unfinished: Unfinished = Field(
        default=Unfinished.RETRY,
        description="What a run does about manifests that [earlier runs left](operations.md#what-an-earlier-run-left).",
    )
    max_age: Duration | None = Field(
        default=None,
        description="How old the end of what is published may be, such as `2h`, before the pipeline is "
        "[late](operations.md#for-a-monitor-tidemark-status). More than the interval of the schedule plus "
        "the time of a run. If not set, `schedule` and `trigger` say it; without them, or with `airflow.own_dag`, "
        "nothing is late.",
        examples=["2h"],
    )
    airflow: AirflowTasks = Field(default_factory=AirflowTasks, description="How Airflow runs the tasks.")
    spark: Spark = Field(default_factory=Spark, description="The Spark application.")
    source: SourceEntry = Field(description="Where the records come from.")
    decode: Decode = Field(description="How a record becomes a row.")
    code: CodeFolder = Field(
        default={},
        description="The folder with the Python modules, relative to the pipeline file.",
        json_schema_extra={"default": None},
    )
    transform: tuple[TransformEntry, ...] = Field(
        default=(), description="Logic on the decoded rows, one entry after the other."
    )
    event_time: EventTimeSettings = Field(
        default_factory=EventTimeSettings, description="When a record happened, which decides its folder."
    )
    hours_window: Duration = Field(
        # One time of 1970 must not make half a million hours; this holds a month with its lateness.
        default=timedelta(days=35),
        description="How far back from a cut Tidemark keeps [event hours](operations.md#hours) without records, and "
        "tells other DAGs of complete ones. At least a day longer than `event_time.allowed_lateness`.",
        json_schema_extra={"default": "35d"},
    )
    on_error: OnError = Field(
        default=OnError.FAIL,
        description="`fail`: the manifest fails, and names topic, partition, offset and reason. `dead_letter`: the "
        "record is kept and counted: in files below `_dead_letters/`, for tables in "
        "`tidemark_target.dead_letter`.",
    )
    max_dead_letters: DeadLetters | None = Field(
        default="50%",
        description="Dead letters of one manifest, at most; a share is of the records read, rounded up. With more "
        "nothing of it is published. `null`: any number.",
    )
    expect: tuple[Expectation, ...] = Field(
        default=(),
        description="Conditions in SQL on the rows that sinks get; rows that do not meet one are counted.",
        examples=[["amount >= 0"]],
    )
    sinks: tuple[SinkEntry, ...] = Field(description="Where the rows go.", json_schema_extra={"minItems": 1})

    @model_validator(mode="before")
    @classmethod
    def _invalid_as_error(cls, data: Any) -> Any:
        """Set ``event_time.on_invalid`` to ``on_error`` if the file does not set it."""
        if not isinstance(data, Mapping) or data.get("on_error") not in tuple(OnError):
            return data
        event_time = data.get("event_time", {})
        if not isinstance(event_time, Mapping):
            return data
        return {**data, "event_time": {"on_invalid": data["on_error"], **event_time}}

    @field_validator("decode")
    @classmethod
    def _a_decoder_for_each_topic(cls, decode: RecordSettings, info: ValidationInfo) -> RecordSettings:
        if not isinstance(decode, DecodeByTopic) or "source" not in info.data:
            return decode
        source: SourceSettings = info.data["source"]
        for topic in source.topics:
            if problem := decode.problem_with_topic(topic):
                raise wrong(f"must have one entry for each topic: topic {topic} {problem}")
        for index, entry in enumerate(decode.entries):
            for topic in entry.topics:
                if not source.reads(topic):
                    raise wrong_at((index, entry.format, "topics"), with_nearest(
                        f"names {topic}, which source.{source.kind} does not read", topic, source.topics))  # fmt: skip
        if problem := decode.problem_with_columns():
            raise wrong(problem)
        return decode

    @field_validator("event_time")
    @classmethod
    def _usable_time(cls, event_time: EventTimeSettings, info: ValidationInfo) -> EventTimeSettings:
        if rows := _known_rows(info):
            check_field(event_time, rows)
        return event_time

    @field_validator("hours_window")
    @classmethod
    def _long_enough(cls, hours_window: timedelta, info: ValidationInfo) -> timedelta:
        lateness = info.data["event_time"].allowed_lateness if "event_time" in info.data else timedelta()
        if hours_window < lateness + timedelta(days=1):
            raise wrong("must be at least a day longer than event_time.allowed_lateness, or no hour of it is complete")
        return hours_window

    @field_validator("transform")
    @classmethod
    def _transforms_that_fit(
        cls, transform: tuple[TransformEntry, ...], info: ValidationInfo
    ) -> tuple[TransformEntry, ...]:
        if transform and "decode" in info.data and "code" in info.data:
            check_transforms(transform, info.data["decode"], info.data["code"])
        return transform

    @field_validator("expect")
    @classmethod
    def _conditions_that_fit(cls, expect: tuple[Expectation, ...], info: ValidationInfo) -> tuple[Expectation, ...]:
        if expect:
            check_expectations_of_file(expect, _known_rows(info))
        return expect

    @field_validator("sinks")
    @classmethod
    def _separate_sinks(cls, sinks: tuple[SinkEntry, ...], info: ValidationInfo) -> tuple[SinkEntry, ...]:
        if not sinks:
            raise wrong("must have at least one entry")
        name = info.data.get("name", "")
        for index, sink in enumerate(sinks):
            for other in sinks[:index]:
                if sink.name == other.name:
                    raise wrong_at(index, f'is the second sink called "{sink.name}": give it a name of its own')
                if sink.meets(other):
                    raise wrong_at(
                        index, f'shares its target with the sink "{other.name}": give each a target of its own'
                    )
                if nested := nested_folders(sink, name, other, name):
                    raise wrong_at(index, f'writes to {nested[0]}, and the sink "{other.name}" to {nested[1]}: one '
                        "lies in the other; give each a folder of its own")  # fmt: skip
        return sinks

    @field_validator("sinks")
    @classmethod
    def _not_its_own_source(cls, sinks: tuple[SinkEntry, ...], info: ValidationInfo) -> tuple[SinkEntry, ...]:
        for index, sink in enumerate(sinks):
            if "source" in info.data and (topic := topic_between(sink, info.data["source"])):
                raise wrong_at(index, f"writes to topic {topic}, which the source of this pipeline reads: "
                    "each run would read what the last one wrote; give the sink a topic of its own, or leave "
                    "this one out of the source")  # fmt: skip
        return sinks

    @field_validator("sinks")
    @classmethod
    def _keys_of_records(cls, sinks: tuple[SinkEntry, ...], info: ValidationInfo) -> tuple[SinkEntry, ...]:
        if "decode" not in info.data:
            return sinks
        decode: RecordSettings = info.data["decode"]
        for index, sink in enumerate(sinks):
            if sink.record_key is not None and (problem := decode.problem_with_record_key()):
                raise wrong_at((index, sink.kind, "key"), problem)
        columns = decode.record_key()
        return tuple(sink.with_record_key(columns) for sink in sinks) if columns else sinks

    @field_validator("sinks")
    @classmethod
    def _columns_that_sinks_hold(cls, sinks: tuple[SinkEntry, ...], info: ValidationInfo) -> tuple[SinkEntry, ...]:
        if rows := _known_rows(info):
            columns = rows.arrow_schema()
            for index, sink in enumerate(sinks):
                if problem := sink.problem_with_rows(rows, columns):
                    raise wrong_at(index, problem)
        return sinks

    @field_validator("sinks")
    @classmethod
    def _slices_that_may_be_put_at_once(
        cls, sinks: tuple[SinkEntry, ...], info: ValidationInfo
    ) -> tuple[SinkEntry, ...]:
        if "spark" in info.data and info.data["spark"].parallel_slices > 1:
            for index, sink in enumerate(sinks):
                if sink.in_order:
                    raise wrong_at(index, "keeps the order of records, so slices are put there one after the other: "
                        "leave out spark.parallel_slices, or give this sink a pipeline of its own")  # fmt: skip
        return sinks

    @property
    def in_order(self) -> bool:
        """Return whether manifests take turns (``lifecycle/turns.py``)."""
        return any(sink.in_order for sink in self.sinks)

    def transforms(self) -> tuple[TransformOrder, ...]:
        """Return the transforms for an order, with the texts of SQL files and of the pipeline's own code."""
        return tuple(entry.order(self.code) for entry in self.transform)

    @property
    def look_back(self) -> timedelta | None:
        """Return how far before a range some transform must have seen the records; None if none must."""
        return max((entry.look_back for entry in self.transform if entry.look_back is not None), default=None)

    def expectations(self) -> tuple[ExpectationOrder, ...]:
        return tuple(each.order() for each in self.expect)

    def connections(self) -> set[str]:
        """Return the ids of all Airflow connections that the file names: of source, registry, orders and sinks."""
        of_sinks = [sink.connections() for sink in self.sinks]
        return self.source.connections().union(self.decode.connections(), self.spark.connections(), *of_sinks)

    def storable(self) -> tuple[Storable, ...]:
        """Return the declarations of all sinks."""
        return tuple(sink.storable() for sink in self.sinks)

    def uses_registry(self) -> bool:
        return self.decode.uses_registry() or any(sink.uses_registry() for sink in self.sinks)

    def fingerprint(self) -> str:
        """Return the SHA-256 of all settings that decide the rows and files of a range, without their place. With a
        schema registry, a plus and the SHA-256 of the pinned schemas follow.

        Keys with their default value are left out: a later version that adds keys keeps the fingerprint.
        """
        settings: dict[str, Any] = {
            "decode": self.decode.decides_output(),
            "event_time": self.event_time.model_dump(mode="json", exclude_defaults=True),
            "on_error": self.on_error,
            "sinks": sorted([sink.kind, sink.name, sink.decides_output()] for sink in self.sinks),
        }
        dead = [each.check for each in self.expect if each.otherwise is Otherwise.DEAD_LETTER]
        if dead:
            settings["expect"] = dead  # expectations that only count change no row
        if self.transform:
            settings["transform"] = [[entry.kind, entry.decides_output(self.code)] for entry in self.transform]
        pinned = self.decode.pinned_output()
        return f"{_sha256(settings)}+{_sha256(pinned)}" if pinned else _sha256(settings)

    def earlier_fingerprints(self) -> list[str]:
        """Return ``fingerprint`` without pinned schemas, for each selection of sinks: an attempt has the sinks of its
        time.

        Pipelines that differ only in names of sinks have them in the same order.
        """
        return [
            self.model_copy(update={"sinks": sinks}).fingerprint().partition("+")[0]
            for number in range(1, len(self.sinks) + 1)
            for sinks in combinations(self.sinks, number)
        ]


def _sha256(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _known_rows(info: ValidationInfo) -> RowSettings | None:
    """Return the rows after the transforms; None if a part of the file that decides them is wrong."""
    if not {"decode", "code", "transform"} <= info.data.keys():
        return None
    return rows_for_sinks(info.data["decode"], info.data["transform"], info.data["code"])


def json_schema(*, links: bool = False) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a pipeline file, for editors; it does not allow ``${NAME}``.

    Descriptions are those of docs/configuration.md; ``links`` keeps their links.
    """
    schema = Pipeline.model_json_schema(by_alias=True)
    schema["properties"][each_topic.KEY] = each_topic.JSON_SCHEMA
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Tidemark pipeline"}
    return schema if links else _without_links(schema)


def _without_links(node: Any) -> Any:
    match node:
        case dict():
            return {
                key: without_links(value) if key == "description" and isinstance(value, str) else _without_links(value)
                for key, value in node.items()
            }
        case list():
            return [_without_links(value) for value in node]
        case _:
            return node
