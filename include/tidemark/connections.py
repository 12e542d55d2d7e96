"""Where Kafka is: from the pipeline file itself, or from an Airflow connection, with or without Airflow.

A connection is a mapping with the keys Airflow uses: ``host``, ``port``, ``login``, ``password``, ``extra``. As in
Airflow's Kafka provider, ``extra`` holds the configuration of the client with its ``bootstrap.servers``; host and port
count when that is not there.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from tidemark.errors import ConfigurationError
from tidemark.notation import nearest, servers
from tidemark.pipeline import KafkaOptions, Pipeline

_PREFIX = "AIRFLOW_CONN_"


class Secret:
    """A text that prints as stars; ``reveal`` gives it to the client that needs it.

    It is not a ``str`` and cannot be pickled or put into JSON, so it does not get into an order or a log by accident.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret(***)"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere; pass it by the environment or a file of mode 0600")


@dataclass(frozen=True)
class KafkaConnection:
    """Address and client options of a Kafka cluster; the options do not hold ``bootstrap.servers``."""

    bootstrap_servers: str
    config: Mapping[str, str | Secret]

    def client_config(self) -> dict[str, str]:
        """The options with their secrets, for the client object alone: never for a log, an order or an argument."""
        return {key: one.reveal() if isinstance(one, Secret) else one for key, one in self.config.items()}


Lookup = Callable[[str], Mapping[str, Any] | None]


def variable_of(conn_id: str) -> str:
    """The environment variable in which Airflow looks for a connection."""
    return f"{_PREFIX}{conn_id.upper()}"


def from_environment(conn_id: str) -> Mapping[str, Any] | None:
    """The connection in ``AIRFLOW_CONN_..``, as JSON or as a URI; None when there is no such variable."""
    text = os.environ.get(variable_of(conn_id), "").strip()
    if not text:
        return None
    try:
        connection = json.loads(text) if text.startswith("{") else _of_uri(text)
        extra = connection.get("extra") or {}
        connection["extra"] = json.loads(extra) if isinstance(extra, str) else extra
    except (ValueError, RecursionError):
        connection = None
    if connection is None or not isinstance(connection["extra"], dict):
        # Nothing of the text, nor of the parser's error, which quotes it: it may hold a password.
        raise ConfigurationError(
            f"{variable_of(conn_id)} is no Airflow connection: neither JSON nor a URI, or its extra is no object",
            next_step=_HOW.format(variable=variable_of(conn_id)),
            connection=conn_id,
        )
    return connection


_HOW = """set {variable}='{{"conn_type": "kafka", "extra": {{"bootstrap.servers": "HOST:PORT"}}}}'"""


def _of_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not parts.scheme or text.count("://") != 1:
        raise ValueError
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": parts.scheme,
        "host": unquote(parts.hostname or ""),
        "port": parts.port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "extra": query.get("__extra__", query),
    }


def kafka_connection(pipeline: Pipeline, lookup: Lookup = from_environment) -> KafkaConnection:
    """Where the pipeline's Kafka is; options of the pipeline file win over those of the connection.

    ``lookup`` finds a connection by its id. ``ConfigurationError`` names keys, never values.
    """
    source = pipeline.source.kafka
    if source.bootstrap_servers is not None:
        return KafkaConnection(source.bootstrap_servers, dict(source.options))
    conn_id = source.connection or ""
    found = lookup(conn_id)
    if found is None:
        raise _missing(pipeline.name, conn_id)
    extra = dict(found.get("extra") or {})
    address = _address(found, extra.pop("bootstrap.servers", None), pipeline.name, conn_id)
    return KafkaConnection(address, {**_options(found, extra, pipeline.name, conn_id), **source.options})


def _missing(pipeline: str, conn_id: str) -> ConfigurationError:
    near = nearest(variable_of(conn_id), (name for name in os.environ if name.startswith(_PREFIX)))
    return ConfigurationError(
        f"the Kafka connection {conn_id} does not exist" + (f"; {near}" if near else ""),
        next_step=f"{_HOW.format(variable=variable_of(conn_id))}, or add it in Airflow under Admin, Connections, "
        "or write source.kafka.bootstrap_servers instead",
        pipeline=pipeline,
        connection=conn_id,
    )


def _address(found: Mapping[str, Any], given: object, pipeline: str, conn_id: str) -> str:
    if given is None and found.get("host"):
        host, port = str(found["host"]), found.get("port")
        given = f"[{host}]:{port}" if port and ":" in host else f"{host}:{port}" if port else host
    try:
        return servers(given if isinstance(given, str) else "")
    except PydanticCustomError:
        raise ConfigurationError(
            f"the Kafka connection {conn_id} names no broker, or not as host:port",
            next_step='set "bootstrap.servers" in its extra, such as {"bootstrap.servers": "broker-1:9092"}',
            pipeline=pipeline,
            connection=conn_id,
        ) from None


def _options(found: Mapping[str, Any], extra: dict[str, Any], pipeline: str, conn_id: str) -> dict[str, str]:
    known = {field.alias or name for name, field in KafkaOptions.model_fields.items()}
    refused = [key for key in ("login", "password") if found.get(key)] + sorted(extra.keys() - known)
    if refused:
        raise ConfigurationError(
            f"the Kafka connection {conn_id} sets {', '.join(refused)}, which is not supported yet",
            next_step=f"remove it; allowed beside bootstrap.servers: {', '.join(sorted(known))}",
            pipeline=pipeline,
            connection=conn_id,
        )
    wrong = sorted(key for key, value in extra.items() if not _is_allowed(key, value))
    if wrong:
        raise ConfigurationError(
            f"the Kafka connection {conn_id} sets {', '.join(wrong)} to a value that is not allowed",
            next_step="give milliseconds from 1000 to 600000, and sizes as a number of bytes or such as 50MiB",
            pipeline=pipeline,
            connection=conn_id,
        )
    return KafkaOptions.model_validate(_numbers(extra)).client_config()


def _numbers(extra: dict[str, Any]) -> dict[str, Any]:
    """A connection's form has text only, so digits there are a number."""
    return {
        key: int(one) if isinstance(one, str) and one.isascii() and one.isdigit() else one for key, one in extra.items()
    }


def _is_allowed(key: str, value: object) -> bool:
    try:
        KafkaOptions.model_validate(_numbers({key: value}))
    except (ValidationError, ValueError):
        return False
    return True
