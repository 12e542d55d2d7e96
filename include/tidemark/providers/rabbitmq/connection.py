"""Address, login and TLS of RabbitMQ from an Airflow connection, with or without Airflow.

``host`` and ``port`` (5552, with TLS 5551) are those of a stream listener, ``login`` and ``password`` the user, and
``schema`` the virtual host (``/`` if empty). ``extra`` may hold ``hosts``, more nodes as ``host:port`` separated by
commas; ``tls`` (true); ``ca``, ``certificate`` and ``key``, PEM files or their text; ``key_password``; and
``mechanism``: ``PLAIN``, or ``EXTERNAL`` for a user that the server identifies by its certificate.

Executors look the connection up themselves, so this module needs only the standard library.
"""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidemark.connections.lookup import Lookup, Secret, Unusable, from_environment, variable_of
from tidemark.errors import ConfigurationError
from tidemark.providers.rabbitmq.client import Login, Node

_PORT, _TLS_PORT = 5552, 5551
_MECHANISMS: Final = ("PLAIN", "EXTERNAL")
_FILES: Final = ("ca", "certificate", "key")
_EXTRA: Final = ("hosts", "tls", "ca", "certificate", "key", "key_password", "mechanism")


Check = Callable[[Mapping[str, str]], None]  # checks PEM texts, by the option that has them


@dataclass(frozen=True)
class RabbitConnection:
    """The nodes to try in order, and the login for them."""

    conn_id: str
    nodes: tuple[Node, ...]
    login: Login

    @property
    def address(self) -> str:
        """The nodes as ``host:port``, separated by commas."""
        return ",".join(map(str, self.nodes))

    def warnings(self) -> list[str]:
        """Return, as sentences, the settings that are allowed but not safe."""
        here = {"localhost", "127.0.0.1", "::1"}
        if self.login.tls is None and {node.host for node in self.nodes} - here:
            return [f"the RabbitMQ connection {self.conn_id}: the password is sent without TLS; set tls in its extra"]
        return []


def rabbit_connection(
    conn_id: str,
    pipeline_name: str,
    lookup: Lookup = from_environment,
    check: Check | None = None,
) -> RabbitConnection:
    """Return the connection of that id; a ``ConfigurationError`` names keys but never their values.

    ``check`` looks at the PEM texts of ca, certificate and key, as far as they are set, and raises ``Unusable``.
    """
    stored = lookup(conn_id)
    if stored is None:
        raise ConfigurationError(
            f"the RabbitMQ connection {conn_id} does not exist",
            next_step=f"set {variable_of(conn_id)}=rabbitmq://USER:PASSWORD@HOST:{_PORT}/VIRTUAL-HOST, or add it in "
            "Airflow under Admin, Connections",
            pipeline=pipeline_name,
            connection=conn_id,
        )
    try:
        return _usable(conn_id, stored, check)
    except Unusable as wrong:
        raise ConfigurationError(
            f"the RabbitMQ connection {conn_id} cannot be used: {wrong.what}",
            next_step=f"{wrong.next_step}; docs/providers/rabbitmq.md shows a connection for each way to log in",
            pipeline=pipeline_name,
            connection=conn_id,
        ) from None


def _usable(conn_id: str, stored: Mapping[str, Any], check: Check | None) -> RabbitConnection:
    extra: Mapping[str, Any] = stored.get("extra") or {}
    unknown = sorted(extra.keys() - set(_EXTRA))
    if unknown:
        raise Unusable(f"its extra has the unknown keys {', '.join(unknown)}", f"allowed: {', '.join(_EXTRA)}")
    mechanism = str(extra.get("mechanism") or "PLAIN").upper()
    if mechanism not in _MECHANISMS:
        raise Unusable(f"mechanism is {mechanism}", f"write {' or '.join(_MECHANISMS)}")
    pem = _pem(extra)
    user, password, host_name = (str(stored.get(name) or "") for name in ("login", "password", "schema"))
    if mechanism == "EXTERNAL" and "certificate" not in pem:
        raise Unusable("mechanism EXTERNAL needs a certificate", "set tls, certificate and key in its extra")
    if mechanism == "PLAIN" and not user:
        raise Unusable("it has no login", "set login and password")
    if check is not None:
        check(pem)
    tls = _context(pem, extra.get("key_password")) if _is_true(extra) else None
    nodes = _nodes(stored, extra, _PORT if tls is None else _TLS_PORT)
    return RabbitConnection(conn_id, nodes, Login(user, Secret(password), host_name or "/", mechanism, tls))


def _nodes(stored: Mapping[str, Any], extra: Mapping[str, Any], port: int) -> tuple[Node, ...]:
    host = stored.get("host")
    first = _node(_with_port(str(host), stored.get("port") or port), "host and port are no address") if host else None
    more = [_node(server.strip()) for server in str(extra.get("hosts") or "").split(",") if server.strip()]
    nodes = tuple(dict.fromkeys([*([first] if first else []), *more]))
    if not nodes:
        raise Unusable("it names no host", "set host, and port when it is not 5552")
    return nodes


def _with_port(host: str, port: object) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _node(server: str, problem: str = "hosts is not a list of host:port") -> Node:
    label = "[A-Za-z0-9_-]{1,63}"
    match = re.fullmatch(rf"({label}(?:\.{label})*|\[[0-9A-Fa-f:.]+\]):(\d{{1,5}})", server)
    if match is None or not 1 <= int(match[2]) <= 65535:
        raise Unusable(problem, "such as rabbit-1:5552,rabbit-2:5552")
    return Node(match[1].strip("[]"), int(match[2]))


def _is_true(extra: Mapping[str, Any]) -> bool:
    """Return whether TLS is on. The value may be text, because Airflow's form for a connection knows only text."""
    tls = str(extra.get("tls") or "false").lower()
    if tls not in ("true", "false"):
        raise Unusable("tls is neither true nor false", "write true")
    return tls == "true"


def _pem(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the PEM texts of the options, which name a file or hold its text."""
    named = {name: str(extra[name]) for name in _FILES if extra.get(name)}
    if named and not _is_true(extra):
        raise Unusable(f"it names {', '.join(named)} without tls", "set tls to true in its extra")
    if ("certificate" in named) != ("key" in named):
        raise Unusable("it has only one of certificate and key", "set both")
    return {name: text if "-----BEGIN" in text else _text_of(name, text) for name, text in named.items()}


def _text_of(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as problem:
        raise Unusable(
            f"{option} names {path}, which cannot be read: {problem.strerror}",
            "give the path on the machine where this runs, also on Spark's executors, or the text of the file",
        ) from None


def _context(pem: Mapping[str, str], key_password: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=pem.get("ca"))
    except (ssl.SSLError, ValueError):
        raise Unusable("ca holds no certificate", "it must hold -----BEGIN CERTIFICATE-----") from None
    if "key" in pem:
        try:
            _load_pair(context, pem["certificate"], pem["key"], key_password)
        except ssl.SSLError:
            raise Unusable(
                "the private key cannot be opened, or does not belong to the certificate",
                "check key and key_password: openssl pkey -noout -in KEYFILE",
            ) from None
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """Load certificate and key into a context through a file in memory; does nothing on systems without such files."""
    if not hasattr(os, "memfd_create"):
        return
    descriptor = os.memfd_create("pair")
    try:
        os.write(descriptor, f"{certificate}\n{key}\n".encode())
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
    finally:
        os.close(descriptor)
