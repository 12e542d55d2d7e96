"""A broker behind MSK's door, and the connection to it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.services.authority import Authority
from sandbox.services.broker import Broker
from sandbox.services.processes import free_port
from tests.worlds.iam_gate import IamGate

CONNECTION = "msk"
KEY_ID, SECRET, REGION = "AKIDOFTHETESTS", "secret/of+the+tests", "eu-central-1"
KEYS = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}


class BrokerOfMsk(Broker):
    """A broker with a second listener, which is advertised as the gate's port."""

    def __init__(self, state: Path, jars: Path) -> None:
        super().__init__(state, jars)
        self.behind, self.gate = free_port(), free_port()

    def _properties(self) -> dict[str, object]:
        properties = super()._properties()
        return {
            **properties,
            "listeners": f"{properties['listeners']},IAM://127.0.0.1:{self.behind}",
            "advertised.listeners": f"{properties['advertised.listeners']},IAM://localhost:{self.gate}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,IAM:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }


@dataclass
class Msk:
    broker: BrokerOfMsk
    gate: IamGate
    authority: Authority

    def extra(self) -> dict[str, str]:
        return {
            "bootstrap.servers": f"localhost:{self.broker.gate}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "ssl.ca.location": str(self.authority.certificate_file),
        }

    def targets(self) -> dict[str, str]:
        """The connection, for a world whose pipeline reads through the gate."""
        return {CONNECTION: json.dumps({"conn_type": "kafka", "extra": self.extra()})}


@contextmanager
def open_msk(state: Path, jars: Path) -> Iterator[Msk]:
    authority = Authority(state / "authority")
    broker = BrokerOfMsk(state, jars)
    own = authority.issue("gate", "localhost")
    with broker, IamGate(broker.gate, broker.behind, own, {KEY_ID: SECRET}, REGION) as gate:
        yield Msk(broker, gate, authority)
        gate.shutdown()
