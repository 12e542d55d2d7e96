"""Connections by their Airflow id, in the form in which Airflow stores them; without Airflow, from the environment.

A connection is a mapping with the keys Airflow uses: ``host``, ``port``, ``login``, ``password``, ``schema`` and
``extra``. It is in a variable of its own, or in the file that ``TIDEMARK_CONNECTIONS`` names: a JSON object of
connections by id, which only its owner may read. Executors use this module too: it needs only the standard library.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.environment import set_variables
from tidemark.errors import ConfigurationError

PREFIX = "AIRFLOW_CONN_"
FILE = "TIDEMARK_CONNECTIONS"
Option = TypeVar("Option")


class Secret:
    """A text that is printed as stars; ``reveal`` gives it to the client that needs it.

    It is not a ``str`` and cannot be pickled or put into JSON, so it does not get into an order or a log by accident.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret(***)"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere; pass it by the environment or a file of mode 0600")


class Unusable(Exception):
    """The wrong part of a connection, and the next step; the caller adds the name of the connection. Names options and
    files, never their content.
    """

    def __init__(self, what: str, next_step: str) -> None:
        self.what, self.next_step = what, next_step
        super().__init__(what)


Lookup = Callable[[str], Mapping[str, Any] | None]


def reveal(option: Option | Secret) -> Option | str:
    """Return the text of a secret, or any other value unchanged; only for the client object, as ``revealed``."""
    return option.reveal() if isinstance(option, Secret) else option


def revealed(config: Mapping[str, "str | Secret"]) -> dict[str, str]:
    """Return options with their secrets, only for the client object: never for a log, an order or an argument."""
    return {key: reveal(option) for key, option in config.items()}


def masked(text: str, config: Mapping[str, "str | Secret"]) -> str:
    """Return a text of another library, such as a client's error, without the secrets that the client was given."""
    for option in config.values():
        if isinstance(option, Secret) and option.reveal():
            text = text.replace(option.reveal(), str(option))
    return text


def variable_of(conn_id: str) -> str:
    """Return the environment variable in which Airflow looks for a connection."""
    return f"{PREFIX}{conn_id.upper()}"


def from_environment(conn_id: str) -> Mapping[str, Any] | None:
    """Return the connection from ``AIRFLOW_CONN_..``, else from the file of ``TIDEMARK_CONNECTIONS``; None without
    either.
    """
    text = os.environ.get(variable_of(conn_id), "").strip()
    if text:
        return _connection(text, variable_of(conn_id), conn_id)
    path = os.environ.get(FILE, "").strip()
    entry = _read_file(Path(path)).get(conn_id) if path else None
    if entry is None:
        return None
    return _connection(entry, f"{conn_id} in the file {path}", conn_id)


def put_in_environment(connections: Mapping[str, Mapping[str, Any]]) -> AbstractContextManager[None]:
    """Put connections by id into environment variables, from which Spark's processes read them.

    Arguments and Spark properties would show secrets in process lists and web pages.
    """
    return set_variables({variable_of(conn_id): json.dumps(entry) for conn_id, entry in connections.items()})


@contextmanager
def put_in_memory(connections: Mapping[str, Mapping[str, Any]]) -> Iterator[str | None]:
    """Yield the path of a file with these connections, for ``TIDEMARK_CONNECTIONS``, until the block ends; None if the
    system has no such files.

    The file is memory of this process: other processes of the same user on this machine can read it while this process
    lives, and nothing is ever on a disk.
    """
    if not hasattr(os, "memfd_create"):
        yield None
        return
    with os.fdopen(os.memfd_create("tidemark-connections"), "w+b") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(json.dumps(dict(connections)).encode())
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"


def connections_from(path: str | None) -> AbstractContextManager[None]:
    """In the block, take connections from a file of ``put_in_memory``, if this process may read it."""
    return set_variables({FILE: path} if path and os.access(path, os.R_OK) else {})


def _connection(entry: object, where: str, conn_id: str) -> Mapping[str, Any]:
    connection: Any
    try:
        text = entry.strip() if isinstance(entry, str) else None
        connection = dict(entry) if isinstance(entry, Mapping) else None
        if text is not None:
            connection = json.loads(text) if text.startswith("{") else _parse_uri(text)
        extra = connection.get("extra") or {}
        connection["extra"] = json.loads(extra) if isinstance(extra, str) else extra
    except (ValueError, AttributeError, RecursionError):
        connection = None
    if connection is None or not isinstance(connection["extra"], dict):
        # The message quotes neither the text nor the parser's error: both may hold a password.
        raise ConfigurationError(
            f"{where} is not an Airflow connection: neither JSON nor a URI, or its extra is not an object",
            next_step=f"""set {variable_of(conn_id)}='{{"conn_type": "..", "host": "..", "extra": {{..}}}}'""",
            connection=conn_id,
        )
    result: Mapping[str, Any] = connection
    return result


def _read_file(path: Path) -> Mapping[str, Any]:
    """Return the connections of a file. Raises ``ConfigurationError`` if others may read it, or if it is not a JSON
    object.
    """
    try:
        with path.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            content = opened.read() if mode & 0o077 == 0 else b""
    except OSError as problem:
        raise ConfigurationError(
            f"the file of {FILE} cannot be read: {problem.strerror}", next_step="correct the variable", file=path
        ) from None
    if mode & 0o077:
        raise ConfigurationError(
            f"the file of {FILE} holds secrets, and its mode {mode:04o} lets others use it",
            next_step=f"chmod 600 {path}",
            file=path,
        )
    try:
        connections = json.loads(content)
    except (ValueError, RecursionError):
        connections = None
    if not isinstance(connections, dict):
        raise ConfigurationError(
            f"the file of {FILE} is not a JSON object of connections by id",
            next_step="""write {"kafka_default": {"conn_type": "kafka", "extra": {..}}, ..}""",
            file=path,
        )
    return connections


def _parse_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    if not parts.scheme or text.count("://") != 1:
        raise ValueError
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": parts.scheme,
        "host": unquote(parts.hostname or ""),
        "port": parts.port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "schema": unquote(parts.path.strip("/")),
        "extra": query.get("__extra__", query),
    }
