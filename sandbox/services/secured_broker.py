"""A Kafka broker that asks for a password, a token or a certificate, for tests of secured connections.

Its listeners are ``SASL`` (SASL_SSL: PLAIN, SCRAM, OAUTHBEARER), ``MTLS`` (a client certificate is required),
``EXPIRED`` (TLS, its certificate has expired), and an open one that only tests use. They are advertised as
``localhost``, the only name in their certificates.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from sandbox.services.authority import Authority, Identity
from sandbox.services.broker import Broker
from sandbox.services.processes import free_port, wait_until

_SECURITY = "org.apache.kafka.common.security"
_SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
ISSUER = "https://example.com/tokens"


class SecuredBroker(Broker):
    """A secured broker. ``users``: name to password, for PLAIN and SCRAM. ``jwks``: a file with the keys of tokens;
    None: no OAUTHBEARER.
    """

    def __init__(self, state: Path, jars: Path, users: Mapping[str, str], jwks: Path | None = None) -> None:
        super().__init__(state, jars)
        self.users = dict(users)
        self.ports = {name: free_port() for name in ("SASL", "MTLS", "EXPIRED")}
        self.authority = Authority(self.state / "authority")
        self._jwks = jwks
        self._own = self.authority.issue("broker", "localhost")
        yesterday = datetime.now(UTC) - timedelta(days=1)
        self._expired = self.authority.issue(
            "expired", "localhost", not_before=yesterday - timedelta(days=1), not_after=yesterday
        )

    def address(self, listener: str) -> str:
        """Return ``host:port`` of a listener, with the host that its certificate names."""
        return f"localhost:{self.ports[listener]}"

    def start(self) -> None:
        """Start the broker and create the SCRAM users through the open listener, so that no password is an argument."""
        super().start()
        self._create_users()

    def _create_users(self) -> None:
        admin = self.admin()
        for mechanism in _SCRAM:  # one request each: a request may name a user only once
            credentials: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
                for name, password in self.users.items()
            ]
            for future in admin.alter_user_scram_credentials(credentials).values():
                future.result(timeout=120)

    def allow(self, topic: str, user: str, operation: AclOperation) -> None:
        """Allow one user one operation on a topic. The broker then refuses all other requests for this topic."""
        admin = self.admin()
        right = (
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        for future in admin.create_acls([AclBinding(*right)]).values():
            future.result(timeout=120)
        asked = AclBindingFilter(*right)  # the controller answers before the broker knows it
        wait_until(lambda: bool(admin.describe_acls(asked).result(timeout=120)), "a right of the broker", timeout=120)

    def _java(self) -> list[str]:
        command, *rest = super()._java()
        if self._jwks is None:
            return [command, *rest]
        return [command, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._jwks.as_uri()}", *rest]

    def _properties(self) -> dict[str, object]:
        properties = super()._properties()
        ports = "".join(f",{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        advertised = "".join(f",{name}://localhost:{port}" for name, port in self.ports.items())
        return {
            **properties,
            "listeners": f"{properties['listeners']}{ports}",
            "advertised.listeners": f"{properties['advertised.listeners']}{advertised}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MTLS:SSL,"
            "EXPIRED:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.certificate_file,
            **self._keystore("sasl", self._own),
            **self._keystore("mtls", self._own),
            **self._keystore("expired", self._expired),
            "listener.name.mtls.ssl.client.auth": "required",
            **self._sasl(),
        }

    def _keystore(self, listener: str, identity: Identity) -> dict[str, object]:
        store = self.state / f"{listener}.keystore.pem"
        store.touch(mode=0o600)
        store.write_text(identity.key + identity.certificate)
        prefix = f"listener.name.{listener}.ssl.keystore"
        return {f"{prefix}.type": "PEM", f"{prefix}.location": store}

    def _sasl(self) -> dict[str, object]:
        quoted = {name: password.replace("\\", "\\\\").replace('"', '\\"') for name, password in self.users.items()}
        users = " ".join(f'user_{name}="{password}"' for name, password in quoted.items())
        modules = {
            "plain": f"plain.PlainLoginModule required {users}",
            "scram-sha-256": "scram.ScramLoginModule required",
            "scram-sha-512": "scram.ScramLoginModule required",
        }
        tokens: dict[str, object] = {}
        if self._jwks is not None:
            modules["oauthbearer"] = "oauthbearer.OAuthBearerLoginModule required"
            tokens |= {
                "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": f"{_SECURITY}.oauthbearer."
                "OAuthBearerValidatorCallbackHandler",
                "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url": self._jwks.as_uri(),
                "listener.name.sasl.sasl.oauthbearer.expected.audience": "kafka",
                "listener.name.sasl.sasl.oauthbearer.expected.issuer": ISSUER,
            }
        enabled = ",".join(name.upper() for name in modules)
        jaas = {
            f"listener.name.sasl.{name}.sasl.jaas.config": _property(f"{_SECURITY}.{module};")
            for name, module in modules.items()
        }
        return {**tokens, **jaas, "listener.name.sasl.sasl.enabled.mechanisms": enabled}


def _property(value: str) -> str:
    """Escape a value for a file of Java properties: double backslashes, and ASCII only."""
    text = value.replace("\\", "\\\\")
    return "".join(char if ord(char) < 128 else f"\\u{ord(char):04x}" for char in text)
