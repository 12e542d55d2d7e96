"""The Airflow that this shell is set up for, and its connections. Nothing here imports Airflow into this process.

Airflow takes more than a second to import, changes logging, and writes a configuration into its home if there is none.
So another process imports it, and only if this shell names an Airflow that exists.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tidemark.errors import Unavailable

DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
SET_UP = (
    f"set AIRFLOW_HOME, or {DATABASE} and AIRFLOW__CORE__FERNET_KEY, as Airflow's scheduler has them; "
    "after make up: . .tidemark/env"
)
TIMEOUT_S = 240.0  # importing Airflow takes 1 to 4 s, minutes on a machine that is very busy


def configuration(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return Airflow's configuration file; the null device if variables replace it; None without an Airflow."""
    home = environment.get("AIRFLOW_HOME") or "~/airflow"
    place = Path(os.path.expandvars(environment.get("AIRFLOW_CONFIG") or f"{home}/airflow.cfg")).expanduser()
    package = find_spec("airflow")
    folders = package.submodule_search_locations if package else None
    if not any(Path(folder, "models").is_dir() for folder in folders or ()):
        return None  # not installed, or only Airflow's SDK, which has no database
    if place.is_file():
        return place
    # Without a file Airflow would create one, and its home. It reads the null device as an empty configuration.
    return Path(os.devnull) if any(f"{DATABASE}{form}" in environment for form in ("", "_CMD", "_SECRET")) else None


def named(configured: Path) -> str:
    """Return the name of a configuration for messages."""
    return f"{DATABASE} of this shell" if configured == Path(os.devnull) else str(configured)


def variables(configured: Path, logs: str) -> dict[str, str]:
    """Return the variables that a process needs to import Airflow without writing into Airflow's home, and without log
    lines in its own output: Airflow warns of each connection type with an underscore.
    """
    of_logs = {"AIRFLOW__LOGGING__BASE_LOG_FOLDER": logs, "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
    return {"AIRFLOW_CONFIG": str(configured), **of_logs}


def connections(configured: Path, ids: Sequence[str], *, limit: float = TIMEOUT_S) -> dict[str, Mapping[str, Any]]:
    """Return those of the connections that Airflow has, in the form of ``connections.Lookup``.

    Raises ``Unavailable`` if Airflow's database or its secrets backend does not answer within ``limit`` seconds.
    """
    try:
        with TemporaryDirectory() as logs:
            answer = subprocess.run(
                [sys.executable, "-m", "tidemark.airflow.stored", *ids],
                env={**os.environ, **variables(configured, logs)},
                text=True,
                capture_output=True,
                timeout=limit,
            )
        connections: dict[str, Mapping[str, Any]] = json.loads(answer.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        silent = f": no answer within {limit:g} s" if isinstance(error, subprocess.TimeoutExpired) else ""
        raise Unavailable(
            f"Airflow ({named(configured)}) cannot be asked for connections {', '.join(ids)}{silent}",
            next_step="airflow db check",
        ) from None
    return connections
