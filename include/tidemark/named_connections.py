"""Connections by their Airflow id, in the shape Airflow stores them; without Airflow, from the environment.

A connection is a mapping with the keys Airflow uses: ``host``, ``port``, ``login``, ``password``, ``schema`` and
``extra``. Only the standard library: executors look their sinks'
connections up here too.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.errors import ConfigurationError

PREFIX = "AIRFLOW_CONN_"


class Secret:
    """A text that prints as stars; ``reveal`` gives it to the client that needs it.

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


Lookup = Callable[[str], Mapping[str, Any] | None]


def variable_of(conn_id: str) -> str:
    """The environment variable in which Airflow looks for a connection."""
    return f"{PREFIX}{conn_id.upper()}"


def from_environment(conn_id: str) -> Mapping[str, Any] | None:
    """The connection in ``AIRFLOW_CONN_..``, as JSON or as a URI; None when there is no such variable."""
    text = os.environ.get(variable_of(conn_id), "").strip()
    if not text:
        return None
    try:
        connection = json.loads(text) if text.startswith("{") else _of_uri(text)
        extra = connection.get("extra") or {}
        connection["extra"] = json.loads(extra) if isinstance(extra, str) else extra
    except (ValueError, RecursionError):
        connection = None
    if connection is None or not isinstance(connection["extra"], dict):
        # Nothing of the text, nor of the parser's error, which quotes it: it may hold a password.
        raise ConfigurationError(
            f"{variable_of(conn_id)} is no Airflow connection: neither JSON nor a URI, or its extra is no object",
            next_step=f"""set {variable_of(conn_id)}='{{"conn_type": "..", "host": "..", "extra": {{..}}}}'""",
            connection=conn_id,
        )
    return connection


def _of_uri(text: str) -> dict[str, Any]:
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
