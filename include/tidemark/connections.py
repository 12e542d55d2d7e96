"""Where Kafka is: from the pipeline file itself, or from an Airflow connection, with or without Airflow.

A connection is a mapping with the keys Airflow uses: ``host``, ``port``, ``login``, ``password``, ``extra``. As in
Airflow's Kafka provider, ``extra`` holds the configuration of the client with its ``bootstrap.servers``; host and port
count when that is not there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from tidemark.errors import ConfigurationError
from tidemark.named_connections import PREFIX, Lookup, Secret, from_environment, variable_of
from tidemark.notation import nearest, servers
from tidemark.pipeline import KafkaOptions, Pipeline


@dataclass(frozen=True)
class KafkaConnection:
    """Address and client options of a Kafka cluster; the options do not hold ``bootstrap.servers``."""

    bootstrap_servers: str
    config: Mapping[str, str | Secret]

    def client_config(self) -> dict[str, str]:
        """The options with their secrets, for the client object alone: never for a log, an order or an argument."""
        return {key: one.reveal() if isinstance(one, Secret) else one for key, one in self.config.items()}


_HOW = """set {variable}='{{"conn_type": "kafka", "extra": {{"bootstrap.servers": "HOST:PORT"}}}}'"""


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
    near = nearest(variable_of(conn_id), (name for name in os.environ if name.startswith(PREFIX)))
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
