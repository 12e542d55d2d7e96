"""A secured broker, and one connection to it for each way to be let in; every secret is a canary of its own."""

import json
import os
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
    """A secret that cannot be anywhere by chance; with what has to be escaped, in Java's login and elsewhere."""
    return f'{what}-{uuid4().hex}"\\ é'


@dataclass
class Secured:
    """``password`` is the user's, ``secret`` that of the client of OAUTHBEARER, ``key_password`` opens the key."""

    broker: SecuredBroker
    endpoint: TokenEndpoint
    password: str
    secret: str
    key_password: str

    @classmethod
    def open(cls, state: Path, jars: Path, endpoint: TokenEndpoint, secret: str) -> "Secured":
        """Nothing is started yet: ``broker`` and ``endpoint`` are for ``with``."""
        password = canary("password")
        broker = SecuredBroker(state, jars, {USER: password}, endpoint.jwks)
        return cls(broker, endpoint, password, secret, f"key-{uuid4().hex}")  # Java takes ASCII only for keys

    def extra(self, way: str, **changed: Any) -> dict[str, Any]:
        """What stands in the extra of the connection; ``changed`` has _ for the dots, None takes an option out."""
        trust = {"ssl.ca.location": str(self.broker.authority.certificate_file)}
        sasl = {"bootstrap.servers": self.broker.address("SASL"), "security.protocol": "SASL_SSL", **trust}
        if way == "mTLS":
            own = self.broker.authority.issue("client", "a-client", password=self.key_password)
            found = {
                "bootstrap.servers": self.broker.address("MTLS"), "security.protocol": "SSL", **trust,
                "ssl.certificate.location": str(own.certificate_file), "ssl.key.location": str(own.key_file),
                "ssl.key.password": self.key_password,
            }  # fmt: skip
        elif way == "OAUTHBEARER":
            found = {
                **sasl, "sasl.mechanism": way, "sasl.oauthbearer.client.id": USER,
                "sasl.oauthbearer.client.secret": self.secret,
                "sasl.oauthbearer.token.endpoint.url": self.endpoint.url, "sasl.oauthbearer.scope": "kafka",
            }  # fmt: skip
        else:
            found = {**sasl, "sasl.mechanism": way, "sasl.username": USER, "sasl.password": self.password}
        found |= {key.replace("_", "."): one for key, one in changed.items()}
        return {key: one for key, one in found.items() if one is not None}

    def variable(self, way: str, **changed: Any) -> str:
        """The whole connection as Airflow has it in an environment variable."""
        return json.dumps({"conn_type": "kafka", "extra": self.extra(way, **changed)})

    def source(self, pipeline: Pipeline, way: str, **changed: Any) -> Source:
        """The driver's face of the broker through a connection."""
        return open_source(pipeline.name, pipeline.source, lambda _: {"extra": self.extra(way, **changed)})

    def world(self, folder: Path, dsn: str, spark_jars: Path, way: str, **settings: Any) -> World:
        """A pipeline that comes in by its connection; its own records are sent through the open listener."""
        kafka = {"bootstrap_servers": None, "connection": CONNECTION, **settings.pop("kafka", {})}
        world = World(folder, dsn, self.broker, spark_jars, settings={"kafka": kafka, **settings})
        world.targets[CONNECTION] = self.variable(way)
        return world


def environment(world: World) -> Any:
    """The connection where Spark's driver looks for it, when that is this process."""
    return mock.patch.dict(os.environ, {VARIABLE: world.targets[CONNECTION]})
