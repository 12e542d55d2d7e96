"""Translates the security options of a Kafka connection to those of Java's client, for Spark.

The options contain certificates and keys as PEM text, so that the machines of Spark's workers need no such files.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from tidemark.connections.certificates import certificates, private_key, without_password
from tidemark.connections.lookup import Secret, revealed
from tidemark.kafka.mechanisms import mechanism
from tidemark.kafka.security import Config, Mechanism, pem

_SECURITY: Final = "org.apache.kafka.common.security"
_NONE: Final = ""  # Java's value for: do not verify host names; librdkafka's is "none"


def java_security(config: Mapping[str, str | Secret]) -> Config:
    """Return the options of Java's client (without Spark's prefix ``kafka.``). ``security_config`` has checked
    ``config``.

    Reads the PEM files again: raises ``Unusable`` if one was removed since.
    """
    plain = revealed(config)
    options: Config = {"security.protocol": plain["security.protocol"]}
    if brought := mechanism(plain.get("sasl.mechanism")):
        options |= brought.java_options()
    elif "sasl.mechanism" in plain:
        options |= _sasl(Mechanism(plain["sasl.mechanism"]), plain)
    if algorithm := plain.get("ssl.endpoint.identification.algorithm"):
        options["ssl.endpoint.identification.algorithm"] = _NONE if algorithm == "none" else algorithm
    return options | _authorities(plain) | _identity(plain)


def jaas(module: str, options: Mapping[str, str]) -> Secret:
    """Return one entry of ``sasl.jaas.config``. Values are escaped: in quotes Java reads a backslash as an escape."""
    words = [f'{name}="{_escaped(value)}"' for name, value in options.items()]
    return Secret(" ".join([f"{_SECURITY}.{module}", "required", *words]) + ";")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _sasl(mechanism: Mechanism, plain: Mapping[str, str]) -> Config:
    options: Config = {"sasl.mechanism": mechanism.value}
    match mechanism:
        case Mechanism.PLAIN:
            return options | {"sasl.jaas.config": jaas("plain.PlainLoginModule", _user(plain))}
        case Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
            return options | {"sasl.jaas.config": jaas("scram.ScramLoginModule", _user(plain))}
        case Mechanism.OAUTHBEARER:
            return options | {
                "sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", _client(plain)),
                "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": plain["sasl.oauthbearer.token.endpoint.url"],
            }
        case other:
            assert_never(other)


def _user(plain: Mapping[str, str]) -> dict[str, str]:
    return {"username": plain["sasl.username"], "password": plain["sasl.password"]}


def _client(plain: Mapping[str, str]) -> dict[str, str]:
    options = {
        # The module ignores the password. But Spark's debug log masks only the part of a JAAS entry after this word
        # (KafkaRedactionUtil.redactJaasParam), so without it the log would show the client's secret.
        "password": "",
        "clientId": plain["sasl.oauthbearer.client.id"],
        "clientSecret": plain["sasl.oauthbearer.client.secret"],
    }
    if scope := plain.get("sasl.oauthbearer.scope"):
        options["scope"] = scope
    extensions = plain.get("sasl.oauthbearer.extensions", "")
    pairs = [extension.partition("=") for extension in extensions.split(",") if extension]
    return options | {f"extension_{name.strip()}": value for name, _, value in pairs}


def _authorities(plain: Mapping[str, str]) -> Config:
    authorities = pem(plain, "ssl.ca")
    if authorities is None:
        return {}  # then both clients trust the machine's certificate authorities
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "\n".join(certificates(*authorities))}


def _identity(plain: Mapping[str, str]) -> Config:
    certificate, key = pem(plain, "ssl.certificate"), pem(plain, "ssl.key")
    if certificate is None or key is None:
        return {}
    block, encrypted = private_key(*key)
    if encrypted:
        # Java 17 cannot open keys as openssl encrypts them now (PBES2). An encrypted key would not be safer here,
        # because the options would hold its password too.
        block = without_password(block, plain["ssl.key.password"])
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "\n".join(certificates(*certificate)),
        "ssl.keystore.key": Secret(block),
    }
