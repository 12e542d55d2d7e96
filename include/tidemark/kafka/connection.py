"""Address and security of Kafka from an Airflow connection, with or without Airflow.

A connection is a mapping with the keys that Airflow uses: ``host``, ``port``, ``login``, ``password``, ``extra``. As in
Airflow's Kafka provider, ``extra`` holds the configuration of the client (librdkafka's names) with its
``bootstrap.servers``; without that key host and port are used. Only a connection may have security options, because a
pipeline file is copied, committed and shown. Spark's driver looks the same connection up through ``java_options``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard, cast

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from tidemark.config.values import servers
from tidemark.connections.lookup import PREFIX, Lookup, Secret, Unusable, from_environment, variable_of
from tidemark.errors import ConfigurationError
from tidemark.kafka.java import java_security
from tidemark.kafka.mechanisms import mechanism
from tidemark.kafka.options import KafkaOptions
from tidemark.kafka.security import Config, instead, is_security, security_config, warnings
from tidemark.text import with_nearest


@dataclass(frozen=True)
class KafkaConnection:
    """Address and client options of a Kafka cluster. The options do not include ``bootstrap.servers``.

    ``conn_id`` is None if the pipeline file itself says where Kafka is; such a broker has no security.
    """

    bootstrap_servers: str
    config: Mapping[str, str | Secret]
    conn_id: str | None = None

    def tuning(self) -> dict[str, str]:
        """Return the options that an order may hold: those that are not about security."""
        return {key: value for key, value in self.config.items() if isinstance(value, str) and not is_security(key)}

    def secured_by(self) -> str | None:
        """Return the id of the connection that Spark's driver must look up; None for a broker without security."""
        return self.conn_id if "security.protocol" in self.config else None

    def jars(self) -> tuple[str, ...]:
        """Return the names of the jars that Spark needs for this connection beside its connector."""
        brought = mechanism(cast("str | None", self.config.get("sasl.mechanism")))
        return () if brought is None else brought.jars

    def warnings(self) -> list[str]:
        """Return, as sentences, the settings that are allowed but not safe."""
        return [f"the Kafka connection {self.conn_id}: {warning}" for warning in warnings(self.config)]


_HOW = """set {variable}='{{"conn_type": "kafka", "extra": {{"bootstrap.servers": "HOST:PORT"}}}}'"""


def java_options(
    conn_id: str | None, tuning: Mapping[str, str], pipeline_name: str, lookup: Lookup = from_environment
) -> Config:
    """Return the options of Java's client for a connection; ``tuning`` replaces options of the connection.

    Without ``conn_id`` the broker has no security, and the options are ``tuning`` alone.
    """
    if conn_id is None:
        return dict(tuning)
    connection = named_connection(conn_id, pipeline_name, lookup)
    try:
        return {**java_security(connection.config), **tuning}
    except Unusable as wrong:  # a certificate file that existed when the run began
        raise _unusable(pipeline_name, conn_id, wrong.what, wrong.next_step) from None


def named_connection(conn_id: str, pipeline_name: str, lookup: Lookup = from_environment) -> KafkaConnection:
    """Return the Kafka connection of that id, checked, with its certificates; raises ``ConfigurationError``."""
    connection = lookup(conn_id)
    if connection is None:
        raise _missing(pipeline_name, conn_id)
    extra = dict(connection.get("extra") or {})
    address = _address(connection, extra.pop("bootstrap.servers", None), pipeline_name, conn_id)
    _refuse_unknown(extra, pipeline_name, conn_id)
    tuning = _tuning({key: value for key, value in extra.items() if not is_security(key)}, pipeline_name, conn_id)
    options = {key: value for key, value in extra.items() if is_security(key)}
    try:
        keys = connection.get("login"), connection.get("password")
        security = security_config(options, *keys, datetime.now(UTC), address)
    except Unusable as wrong:
        raise _unusable(pipeline_name, conn_id, wrong.what, wrong.next_step) from None
    return KafkaConnection(address, {**tuning, **security}, conn_id)


def _unusable(pipeline_name: str, conn_id: str, what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(
        f"the Kafka connection {conn_id} cannot be used: {what}",
        next_step=f"{next_step}; docs/configuration.md shows a connection for each mechanism",
        pipeline=pipeline_name,
        connection=conn_id,
    )


def _missing(pipeline_name: str, conn_id: str) -> ConfigurationError:
    variables = [name for name in os.environ if name.startswith(PREFIX)]
    return ConfigurationError(
        with_nearest(f"the Kafka connection {conn_id} does not exist", variable_of(conn_id), variables),
        next_step=f"{_HOW.format(variable=variable_of(conn_id))}, or add it in Airflow under Admin, Connections, "
        "or write source.kafka.bootstrap_servers instead",
        pipeline=pipeline_name,
        connection=conn_id,
    )


def _address(connection: Mapping[str, Any], bootstrap_servers: object, pipeline_name: str, conn_id: str) -> str:
    if bootstrap_servers is None and connection.get("host"):
        host, port = str(connection["host"]), connection.get("port")
        bootstrap_servers = f"[{host}]:{port}" if port and ":" in host else f"{host}:{port}" if port else host
    try:
        return servers(bootstrap_servers if isinstance(bootstrap_servers, str) else "")
    except PydanticCustomError:
        raise ConfigurationError(
            f"the Kafka connection {conn_id} names no broker in the form host:port",
            next_step='set "bootstrap.servers" in its extra, such as {"bootstrap.servers": "broker-1:9092"}',
            pipeline=pipeline_name,
            connection=conn_id,
        ) from None


def _refuse_unknown(extra: Mapping[str, Any], pipeline_name: str, conn_id: str) -> None:
    tuning = {field.alias or name for name, field in KafkaOptions.model_fields.items()}
    unknown = sorted(key for key in extra if key not in tuning and not is_security(key))
    if unknown:
        hints = {key: instead(key) or KafkaOptions.problem_with_key(key) for key in unknown}
        advice = [f"{key}: {hint}" for key, hint in hints.items() if hint]
        raise ConfigurationError(
            f"the Kafka connection {conn_id} sets {', '.join(unknown)}, which is not allowed",
            next_step="; ".join([*advice, f"allowed beside security: {', '.join(sorted(tuning))}"]),
            pipeline=pipeline_name,
            connection=conn_id,
        )


def _tuning(extra: dict[str, Any], pipeline_name: str, conn_id: str) -> dict[str, str]:
    wrong = sorted(key for key, value in extra.items() if not _is_allowed(key, value))
    if wrong:
        raise ConfigurationError(
            f"the Kafka connection {conn_id} sets {', '.join(wrong)} to a value that is not allowed",
            next_step="give milliseconds from 1000 to 600000, and sizes as a number of bytes or such as 50MiB",
            pipeline=pipeline_name,
            connection=conn_id,
        )
    return KafkaOptions.model_validate(_numbers(extra)).client_config()


def _numbers(extra: dict[str, Any]) -> dict[str, Any]:
    """Turn text of digits into numbers, because Airflow's form for a connection knows only text."""
    return {key: int(value) if _is_digits(value) else value for key, value in extra.items()}


def _is_digits(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def _is_allowed(key: str, value: object) -> bool:
    try:
        KafkaOptions.model_validate(_numbers({key: value}))
    except (ValidationError, ValueError):
        return False
    return True
