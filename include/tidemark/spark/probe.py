"""What an executor tells of itself. It runs there, so it imports the standard library only until it has looked."""

import json
import os
import platform
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("pyarrow", "pyspark", "psycopg")
CONNECT_S = 5.0
REST_S = 0.5  # a task that takes a while: else one executor does them all


@dataclass(frozen=True)
class Questions:
    """Connections by their ids, (kind of sink, connection) to try, nonce files the driver has written, ``host:port`` of
    the source."""

    connections: Sequence[str]
    targets: Sequence[tuple[str, str]]
    nonces: Sequence[str]
    brokers: Sequence[str]


def look(questions: Questions, _: Iterable[int]) -> Iterator[str]:
    """One answer as JSON; secrets are looked for and never told."""
    time.sleep(REST_S)
    yield json.dumps(
        {
            "host": socket.gethostname(),
            "folder": str(Path.cwd()),
            "now": time.time(),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "tidemark": _tidemark(),
            "missing": [one for one in questions.connections if not _has(one)],
            "unreachable": {
                one: said for kind, one in questions.targets if _has(one) and (said := _refusal(kind, one))
            },
            "unseen": [one for one in questions.nonces if not Path(one).is_file()],
            "read_only": [one for one in questions.nonces if not os.access(Path(one).parent, os.W_OK | os.X_OK)],
            "brokers": [one for one in questions.brokers if not _connects(one)],
        }
    )


def _version(package: str) -> str | None:
    """What pip installed; for Spark's own PySpark, which pip does not know, what it says itself."""
    try:
        return version(package)
    except PackageNotFoundError:
        try:
            return str(__import__(package).__version__)
        except ImportError:
            return None


def _tidemark() -> str:
    from tidemark.version import PACKAGE, VERSION

    return f"{VERSION} from {PACKAGE}"


def _has(conn_id: str) -> bool:
    from tidemark.connections import from_environment

    return from_environment(conn_id) is not None


def _refusal(kind: str, conn_id: str) -> str:
    """Why the target of a connection does not let this executor in; empty when it does."""
    from tidemark.errors import TidemarkError
    from tidemark.sinks.writers import try_connection

    try:
        try_connection(kind, conn_id)
    except TidemarkError as error:
        return error.what
    return ""


def _connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True
