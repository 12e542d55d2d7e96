"""Describes an executor to the driver. At module level it imports only the standard library, because executors run
it.
"""

import json
import os
import platform
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("pyarrow", "pyspark", "psycopg")
REST_S = 0.5  # a pause in each task: without it one executor does all tasks


@dataclass(frozen=True)
class Questions:
    """The questions to an executor: ``connections`` are ids of connections, ``targets`` are (kind of sink, id of
    connection) to try, ``nonces`` are files that the driver has written, ``addresses`` are those of the source
    (``host:port``).
    """

    connections: Sequence[str]
    targets: Sequence[tuple[str, str]]
    nonces: Sequence[str]
    addresses: Sequence[str]


def look(questions: Questions, _: Iterable[int]) -> Iterator[str]:
    """Yield one answer as JSON. It names connections, and never contains their secrets."""
    time.sleep(REST_S)
    yield json.dumps(
        {
            **versions(),
            "host": socket.gethostname(),
            "folder": str(Path.cwd()),
            "now": time.time(),
            "missing": [conn_id for conn_id in questions.connections if not _has(conn_id)],
            "unreachable": {
                conn_id: problem
                for kind, conn_id in questions.targets
                if _has(conn_id) and (problem := _problem_with_connection(kind, conn_id)) is not None
            },
            "unseen": [nonce for nonce in questions.nonces if not Path(nonce).is_file()],
            "read_only": [nonce for nonce in questions.nonces if not os.access(Path(nonce).parent, os.W_OK | os.X_OK)],
            "sources": [address for address in questions.addresses if not _connects(address)],
        }
    )


def versions() -> dict[str, Any]:
    """Return the versions of Python, of packages (None: missing) and of Tidemark in this process."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "tidemark": _tidemark(),
    }


def _version(package: str) -> str | None:
    """Return the version that pip installed, or the package's own: pip does not know the PySpark of a Spark
    installation.
    """
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
    from tidemark.connections.lookup import from_environment

    return from_environment(conn_id) is not None


def _problem_with_connection(kind: str, conn_id: str) -> str | None:
    """Return the reason why this executor cannot connect to the target, or None."""
    from tidemark.errors import TidemarkError
    from tidemark.sinks.writers import writer_of

    try:
        writer_of(kind).try_connection(conn_id)
    except TidemarkError as error:
        return error.what
    return None


def _connects(address: str) -> bool:
    from tidemark.spark.reach import problem_with_address

    host, _, port = address.rpartition(":")
    return problem_with_address(host, int(port)) is None
