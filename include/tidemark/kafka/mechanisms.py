"""SASL mechanisms that providers bring, beside those of ``security.Mechanism``: what each of the two clients needs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from tidemark.connections.lookup import Unusable
from tidemark.kinds import MECHANISMS


class SaslMechanism(ABC):
    """A mechanism of one name. ``servers`` is always ``host:port,host:port`` of the connection.

    ``jars`` are the names of the jars that Spark's client needs, without version.
    """

    jars: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def is_meant(self, options: Mapping[str, str], servers: str) -> bool:
        """Return whether a connection that names another mechanism means this one."""

    @abstractmethod
    def check(self, options: Mapping[str, str], servers: str) -> None:
        """Raise ``Unusable`` if the options of the connection do not fit. Asks no server."""

    @abstractmethod
    def client_options(self, servers: str) -> dict[str, Any]:
        """Return the options of librdkafka, in place of ``sasl.mechanism``.

        Raises a ``TidemarkError`` if this process has nothing to log in with.
        """

    @abstractmethod
    def java_options(self) -> dict[str, str]:
        """Return the options of Java's client, without secrets."""

    @abstractmethod
    def after_refusal(self, servers: str) -> str:
        """Return the next step after brokers have refused a client."""


def mechanism(name: str | None) -> SaslMechanism | None:
    """Return the mechanism of that name if a provider brings it."""
    if name is None or name not in MECHANISMS:
        return None
    return cast("SaslMechanism", MECHANISMS.module(name, "mechanism").open_mechanism())


def mechanism_of(options: Mapping[str, str], servers: str) -> str | None:
    """Return the name of a provider's mechanism that a connection names or means; None for all others.

    Raises ``Unusable`` if a library of the provider is not installed.
    """
    text = options.get("sasl.mechanism", "").upper()
    for name in MECHANISMS:
        brought = mechanism(name)
        if name == text or (brought is not None and brought.is_meant(options, servers)):
            if problem := MECHANISMS.problem_with(name):
                what, _, step = problem.partition("; ")
                raise Unusable(f"its sasl.mechanism {name} {what}", step)
            return name
    return None


def client_options(config: Mapping[str, str], servers: str) -> dict[str, Any]:
    """Return the options of librdkafka. ``config`` is that of a connection, with its secrets revealed."""
    brought = mechanism(config.get("sasl.mechanism"))
    if brought is None:
        return dict(config)
    others = {name: value for name, value in config.items() if name != "sasl.mechanism"}
    return {**others, **brought.client_options(servers)}
