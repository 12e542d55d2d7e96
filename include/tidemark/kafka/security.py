"""The security options of a Kafka connection, by librdkafka's names, checked before any client starts.

Tidemark plans with librdkafka, and Spark reads with Java's client. An option that only one of them supports would fail
in the middle of a run. So it is refused here, and the error names the option to use instead. ``kafka/java.py``
translates the others.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final, assert_never
from urllib.parse import urlsplit

from tidemark.connections.certificates import check_authorities, check_own, check_pair, private_key, read_pem
from tidemark.connections.lookup import Secret, Unusable
from tidemark.kafka.mechanisms import mechanism, mechanism_of
from tidemark.kinds import MECHANISMS
from tidemark.text import nearest

Config = dict[str, str | Secret]


class Protocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def sasl(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)

    @property
    def tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)


class Mechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


SECRETS: Final = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "ssl.key.password")
ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
ALLOWED: Final = (
    "security.protocol",
    "sasl.mechanism", "sasl.username", "sasl.password",
    "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions",
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem",
    "ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
_FAMILIES: Final = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.")
INSTEAD: Final[Mapping[str, str]] = {
    "sasl.jaas.config": "write user and password as login and password of the connection; Tidemark makes Java's form",
    "sasl.login.*": "write sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret",
    "sasl.client.callback.*": "write sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret",
    "sasl.oauthbearer.config": "tokens without a signature are for tests; write sasl.oauthbearer.method: oidc",
    "sasl.oauthbearer.*": "both clients know client.id, client.secret, token.endpoint.url, scope and extensions only",
    "sasl.kerberos.*": "Kerberos is not supported",
    "ssl.truststore.*": "write ssl.ca.location (a PEM file) or ssl.ca.pem; Tidemark makes Java's form",
    "ssl.keystore.*": "write ssl.certificate.location and ssl.key.location (PEM files); Tidemark makes Java's form",
    "ssl.cipher.suites": "the two clients name ciphers differently; restrict them on the broker",
    "ssl.*.list": "the two clients name curves and signatures differently; restrict them on the broker",
    "enable.ssl.certificate.verification": "certificates are always verified; give the broker's authority as ssl.ca.*",
    "https.ca.*": "Java's client verifies the token endpoint by the machine's authorities",
}


def instead(key: str) -> str:
    """Return what to write in place of an option that is not allowed; empty if nothing is known, or it is no security
    option."""
    if not key.startswith(_FAMILIES):
        return ""
    reason = next((reason for pattern, reason in INSTEAD.items() if fnmatchcase(key, pattern)), "")
    return reason or nearest(key, (*ALLOWED, *ALIASES))


def is_security(key: str) -> bool:
    """Return whether this is an allowed security option. Others are tuning options, or not allowed."""
    return key in ALLOWED or key in ALIASES


def security_config(
    extra: Mapping[str, Any], login: object, password: object, now: datetime, servers: str = ""
) -> Config:
    """Return the options of a connection by librdkafka's names, complete and checked; empty for a broker without
    security.

    ``login`` and ``password`` are the connection's own fields: user and password for SASL; without SASL the password is
    that of the client's private key. Airflow hides the password in its audit log, but nothing in ``extra``.
    ``servers`` are the brokers, ``host:port,host:port``.

    Raises ``Unusable``.
    """
    options = _values(extra)
    protocol = _protocol(options)
    if protocol is None:
        _refuse_without_protocol(options, login, password)
        return {}
    options["security.protocol"] = protocol
    if protocol.sasl:
        _authenticate(options, login, password, servers)
    else:
        _refuse(options, "sasl.*", f"security.protocol is {protocol}", "write security.protocol: SASL_SSL")
        _take_key_password(options, protocol, login, password)
    if protocol.tls:
        _check_tls(options, now)
    else:
        with_tls = Protocol.SASL_SSL if protocol.sasl else Protocol.SSL
        _refuse(options, "ssl.*", f"security.protocol is {protocol}", f"write security.protocol: {with_tls}")
    return {key: Secret(value) if key in SECRETS else value for key, value in sorted(options.items())}


def warnings(config: Mapping[str, str | Secret]) -> list[str]:
    """Return, as sentences, the settings that are allowed but not safe."""
    clear = config.get("security.protocol") == Protocol.SASL_PLAINTEXT
    sentences = []
    if clear and config.get("sasl.mechanism") in (Mechanism.PLAIN, Mechanism.OAUTHBEARER):
        sentences.append("its password or token crosses the network in clear text: security.protocol is SASL_PLAINTEXT")
    if config.get("ssl.endpoint.identification.algorithm") == "none":
        sentences.append("the brokers' names are not verified: ssl.endpoint.identification.algorithm is none")
    return sentences


def pem(config: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """Return (option, text) of ``ssl.ca``, ``ssl.certificate`` or ``ssl.key``; the text is in the option or in its
    file.

    ``config`` has its secrets revealed.
    """
    inline, path = config.get(f"{name}.pem"), config.get(f"{name}.location")
    if inline is not None:
        return f"{name}.pem", inline
    return None if path is None else (f"{name}.location", read_pem(f"{name}.location", path))


def _values(extra: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in extra.items():
        name = ALIASES.get(key, key)
        if isinstance(value, bool) or not isinstance(value, str | int) or str(value) == "" or "\0" in str(value):
            raise Unusable(
                f"it sets {key} to an empty value, or to one that is not text", "give its value, or remove it"
            )
        if options.setdefault(name, str(value)) != str(value):
            raise Unusable(f"it sets {key} and {name}, which are the same option, to different values", f"keep {name}")
    return options


def _protocol(options: Mapping[str, str]) -> Protocol | None:
    text = options.get("security.protocol")
    if text is None or text.upper() in tuple(Protocol):
        return None if text is None else Protocol(text.upper())
    raise Unusable(
        f"its security.protocol is none of {', '.join(Protocol)}", nearest(text, Protocol) or "write SASL_SSL or SSL"
    )


def _refuse_without_protocol(options: Mapping[str, str], login: object, password: object) -> None:
    names = [*sorted(options), *(["login"] if login else []), *(["password"] if password else [])]
    if names:
        wanted = "SSL" if all(name.startswith("ssl.") for name in names) else "SASL_SSL"
        raise Unusable(
            f"it sets {', '.join(names)} without security.protocol, so they would have no effect",
            f'add "security.protocol": "{wanted}" to its extra',
        )


def _refuse(options: Mapping[str, str], pattern: str, because: str, next_step: str) -> None:
    matching = sorted(key for key in options if fnmatchcase(key, pattern))
    if matching:
        raise Unusable(f"it sets {', '.join(matching)}, and {because}", next_step)


def _authenticate(options: dict[str, str], login: object, password: object, servers: str) -> None:
    text = options.get("sasl.mechanism", "")
    if brought := mechanism_of(options, servers):
        _leave_to(brought, options, login or password, servers)
        return
    if text.upper() not in tuple(Mechanism):
        known = (*Mechanism, *MECHANISMS)
        what = "is missing" if not text else f"is none of {', '.join(known)}"
        raise Unusable(f"its sasl.mechanism {what}", nearest(text, known) or f"write {Mechanism.SCRAM_SHA_512}")
    own = Mechanism(text.upper())
    options["sasl.mechanism"] = own
    match own:
        case Mechanism.PLAIN | Mechanism.SCRAM_SHA_256 | Mechanism.SCRAM_SHA_512:
            user, secret = "sasl.username", "sasl.password"
            _refuse(options, "sasl.oauthbearer.*", f"sasl.mechanism is {own}", "remove it")
        case Mechanism.OAUTHBEARER:
            user, secret = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
            for other in ("sasl.username", "sasl.password"):
                _refuse(options, other, f"sasl.mechanism is {own}", f"write {user} and {secret}")
            _check_oidc(options)
        case other:
            assert_never(other)
    for field, name, value in (("login", user, login), ("password", secret, password)):
        if value and options.setdefault(name, str(value)) != str(value):
            raise Unusable(f"its {field} and {name} differ", f"keep one of them: the field {field}, or {name}")
        if name not in options:
            raise Unusable(f"{name} is missing for {own}", f"set the connection's {field}, or {name}")
        if any(ord(character) < 32 for character in options[name]):
            raise Unusable(f"{name} holds a control character", "remove it; it may be a line end that was copied too")


def _leave_to(name: str, options: dict[str, str], keys: object, servers: str) -> None:
    """Check a connection of a mechanism that a provider brings. It has its keys from elsewhere."""
    options["sasl.mechanism"] = name
    others = sorted(key for key in options if key.startswith("sasl.") and key != "sasl.mechanism")
    if others or keys:
        extras = ", ".join([*others, *(["a login or a password"] if keys else [])])
        raise Unusable(f"it sets {extras}, which {name} does not use", "remove it")
    brought = mechanism(name)
    assert brought is not None, "it was found by its name"
    brought.check(options, servers)


def _take_key_password(options: dict[str, str], protocol: Protocol, login: object, password: object) -> None:
    has_key = protocol.tls and any(key in options for key in ("ssl.key.location", "ssl.key.pem"))
    if login or (password and not has_key):
        raise Unusable(
            f"it has a login or a password, which {protocol} does not use", "write security.protocol: SASL_SSL"
        )
    if password and options.setdefault("ssl.key.password", str(password)) != str(password):
        raise Unusable("its password and ssl.key.password differ", "keep the password of the connection")


def _check_oidc(options: dict[str, str]) -> None:
    if options.setdefault("sasl.oauthbearer.method", "oidc") != "oidc":
        raise Unusable("its sasl.oauthbearer.method is not oidc", "both clients know oidc only")
    address = options.get("sasl.oauthbearer.token.endpoint.url", "")
    parts = urlsplit(address)
    if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc:
        raise Unusable(
            "sasl.oauthbearer.token.endpoint.url is missing, or is not an address, or names a user",
            "give the token endpoint, such as https://example.com/oauth2/token",
        )


def _check_tls(options: dict[str, str], now: datetime) -> None:
    algorithm = options.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm not in ("https", "none"):
        raise Unusable("its ssl.endpoint.identification.algorithm is neither https nor none", "leave it out")
    for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if f"{name}.pem" in options and f"{name}.location" in options:
            raise Unusable(f"it sets {name}.pem beside {name}.location", "keep one of them")
    if authorities := pem(options, "ssl.ca"):
        check_authorities(*authorities, now)
    certificate, key = pem(options, "ssl.certificate"), pem(options, "ssl.key")
    if (certificate is None) != (key is None):
        missing, present = ("ssl.key", "ssl.certificate") if key is None else ("ssl.certificate", "ssl.key")
        raise Unusable(f"it sets {present} without {missing}", f"add {missing}.location or {missing}.pem")
    if certificate is None or key is None:
        _refuse(options, "ssl.key.password", "there is no ssl.key", "remove it, or add certificate and key")
        return
    check_own(*certificate, now)
    block, encrypted = private_key(*key)
    if encrypted and "ssl.key.password" not in options:
        raise Unusable(
            f"{key[0]} is encrypted, and ssl.key.password is missing",
            "set the connection's password, beside SASL ssl.key.password",
        )
    check_pair(*certificate, block, options.get("ssl.key.password"))
