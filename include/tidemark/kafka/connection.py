"""Where Kafka is and how to be let in: an Airflow connection, with or without Airflow.

A connection is a mapping with the keys Airflow uses: ``host``, ``port``, ``login``, ``password``, ``extra``. As in
Airflow's Kafka provider, ``extra`` holds the configuration of the client (librdkafka's names) with its
``bootstrap.servers``; host and port count when that is not there. Security stands in a connection only: a pipeline file
is copied, committed and shown. Spark's driver comes in by ``java_options`` and looks the same connection up.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from tidemark.config.values import servers
from tidemark.connections import PREFIX, Lookup, Secret, from_environment, variable_of
from tidemark.errors import ConfigurationError
from tidemark.kafka.certificates import WrongCertificate
from tidemark.kafka.java import java_security
from tidemark.kafka.options import KafkaOptions
from tidemark.kafka.security import Config, WrongSecurity, instead, is_security, security_config, warnings
from tidemark.suggestion import nearest


@dataclass(frozen=True)
class KafkaConnection:
    """Address and client options of a Kafka cluster; the options do not hold ``bootstrap.servers``.

    ``conn_id`` is None when the pipeline file itself says where Kafka is; such a broker has no security.
    """

    bootstrap_servers: str
    config: Mapping[str, str | Secret]
    conn_id: str | None = None

    def tuning(self) -> dict[str, str]:
        """The options that an order may hold: none of them is about security."""
        return {key: one for key, one in self.config.items() if isinstance(one, str) and not is_security(key)}

    def secured_by(self) -> str | None:
        """The id of the connection that Spark's driver has to look up; None when there is nothing to look up."""
        return self.conn_id if "security.protocol" in self.config else None

    def warnings(self) -> list[str]:
        """What is allowed and still unwise, as sentences."""
        return [f"the Kafka connection {self.conn_id}: {one}" for one in warnings(self.config)]


_HOW = """set {variable}='{{"conn_type": "kafka", "extra": {{"bootstrap.servers": "HOST:PORT"}}}}'"""


def java_options(
    conn_id: str | None, tuning: Mapping[str, str], pipeline: str, lookup: Lookup = from_environment
) -> Config:
    """Options of Java's client for a connection, which is looked up here; ``tuning`` wins. None: no security."""
    if conn_id is None:
        return dict(tuning)
    connection = named_connection(conn_id, pipeline, lookup)
    try:
        return {**java_security(connection.config), **tuning}
    except WrongCertificate as wrong:  # a file that was there when the run began
        raise _unusable(pipeline, conn_id, wrong.what, wrong.next_step) from None


def named_connection(conn_id: str, pipeline: str, lookup: Lookup = from_environment) -> KafkaConnection:
    """The Kafka connection of that id, complete and checked; certificates are read here for the first time."""
    found = lookup(conn_id)
    if found is None:
        raise _missing(pipeline, conn_id)
    extra = dict(found.get("extra") or {})
    address = _address(found, extra.pop("bootstrap.servers", None), pipeline, conn_id)
    _refuse_unknown(extra, pipeline, conn_id)
    tuning = _tuning({key: one for key, one in extra.items() if not is_security(key)}, pipeline, conn_id)
    asked = {key: one for key, one in extra.items() if is_security(key)}
    try:
        security = security_config(asked, found.get("login"), found.get("password"), datetime.now(UTC))
    except WrongSecurity as wrong:
        raise _unusable(pipeline, conn_id, wrong.what, wrong.next_step) from None
    return KafkaConnection(address, {**tuning, **security}, conn_id)


def _unusable(pipeline: str, conn_id: str, what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(
        f"the Kafka connection {conn_id} cannot be used: {what}",
        next_step=f"{next_step}; docs/configuration.md shows a connection for each mechanism",
        pipeline=pipeline,
        connection=conn_id,
    )


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


def _refuse_unknown(extra: Mapping[str, Any], pipeline: str, conn_id: str) -> None:
    tuning = {field.alias or name for name, field in KafkaOptions.model_fields.items()}
    unknown = sorted(key for key in extra if key not in tuning and not is_security(key))
    if unknown:
        advice = [f"{key}: {said}" for key in unknown if (said := instead(key) or KafkaOptions.why_refused(key))]
        raise ConfigurationError(
            f"the Kafka connection {conn_id} sets {', '.join(unknown)}, which is not allowed",
            next_step="; ".join([*advice, f"allowed beside security: {', '.join(sorted(tuning))}"]),
            pipeline=pipeline,
            connection=conn_id,
        )


def _tuning(extra: dict[str, Any], pipeline: str, conn_id: str) -> dict[str, str]:
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
