"""A secured broker, and a connection to it for each way of authentication. Every secret is a different canary."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

from sandbox.services.secured_broker import SecuredBroker
from tests.worlds.token_endpoint import TokenEndpoint
from tests.worlds.world import World
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source

CONNECTION = "secured"
VARIABLE = "AIRFLOW_CONN_SECURED"
USER = "reader"
WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "mTLS", "OAUTHBEARER")


def canary(what: str) -> str:
    """A secret that cannot occur by chance, with characters that need escapes in Java's login and elsewhere."""
    return f'{what}-{uuid4().hex}"\\ é'


@dataclass
class Secured:
    """The broker and its secrets: ``password`` is the user's, ``secret`` the OAUTHBEARER client's, ``key_password``
    that of the client's key."""

    broker: SecuredBroker
    endpoint: TokenEndpoint
    password: str
    secret: str
    key_password: str

    @classmethod
    def open(cls, state: Path, jars: Path, endpoint: TokenEndpoint, secret: str) -> "Secured":
        """Starts nothing: the caller starts ``broker`` and ``endpoint`` with ``with``."""
        password = canary("password")
        broker = SecuredBroker(state, jars, {USER: password}, endpoint.jwks)
        return cls(broker, endpoint, password, secret, f"key-{uuid4().hex}")  # for keys Java accepts only ASCII

    def extra(self, way: str, **changed: Any) -> dict[str, Any]:
        """The extra of the connection. ``changed``: other options, with _ for dots; None removes an option."""
        trust = {"ssl.ca.location": str(self.broker.authority.certificate_file)}
        sasl = {"bootstrap.servers": self.broker.address("SASL"), "security.protocol": "SASL_SSL", **trust}
        if way == "mTLS":
            own = self.broker.authority.issue("client", "a-client", password=self.key_password)
            options = {
                "bootstrap.servers": self.broker.address("MTLS"), "security.protocol": "SSL", **trust,
                "ssl.certificate.location": str(own.certificate_file), "ssl.key.location": str(own.key_file),
                "ssl.key.password": self.key_password,
            }  # fmt: skip
        elif way == "OAUTHBEARER":
            options = {
                **sasl, "sasl.mechanism": way, "sasl.oauthbearer.client.id": USER,
                "sasl.oauthbearer.client.secret": self.secret,
                "sasl.oauthbearer.token.endpoint.url": self.endpoint.url, "sasl.oauthbearer.scope": "kafka",
            }  # fmt: skip
        else:
            options = {**sasl, "sasl.mechanism": way, "sasl.username": USER, "sasl.password": self.password}
        options |= {key.replace("_", "."): value for key, value in changed.items()}
        return {key: value for key, value in options.items() if value is not None}

    def variable(self, way: str, **changed: Any) -> str:
        """The connection as the value of an environment variable of Airflow."""
        return json.dumps({"conn_type": "kafka", "extra": self.extra(way, **changed)})

    def source(self, pipeline: Pipeline, way: str, **changed: Any) -> Source:
        """The source that uses this connection."""
        return open_source(pipeline.name, pipeline.source, lambda _: {"extra": self.extra(way, **changed)})

    def world(
        self, folder: Path, dsn: str, spark_jars: Path, way: str, *, kind: type[World] = World,
        targets: Mapping[str, str] | None = None, topic_config: dict[str, str] | None = None, **settings: Any,
    ) -> World:  # fmt: skip
        """A pipeline that reads through its connection; the world sends records through the open listener."""
        kafka = {"bootstrap_servers": None, "connection": CONNECTION, **settings.pop("kafka", {})}
        connections = {**(targets or {}), CONNECTION: self.variable(way)}
        settings = {"kafka": kafka, **settings}
        return kind(
            folder,
            dsn,
            self.broker,
            spark_jars,
            settings=settings,
            targets=connections,
            topic_config=topic_config or {},
        )


def environment(world: World) -> Any:
    """Sets the variable of the connection in this process, for a Spark driver here."""
    return mock.patch.dict(os.environ, {VARIABLE: world.targets[CONNECTION]})
