"""Reads the environment variables TIDEMARK_DB, _PIPELINES, _HOME, _SPARK_JARS, _SPARK_MASTER and _SPARK_REMOTE."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.errors import ConfigurationError


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process for the block, then restore them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class Environment:
    """The places that a process works with.

    ``pipelines`` is the folder of pipeline files, ``home`` the folder where relative lake roots start, ``spark_jars``
    the folder with the connectors of the sources (None: the cluster has them). ``spark_master`` is the master for the
    command line; in Airflow the Spark connection names it. ``spark_remote`` is the address of a Spark Connect server,
    which may contain a token.
    """

    dsn: str | None
    pipelines: Path
    home: Path
    spark_jars: Path | None
    spark_master: str = "local[*]"
    spark_remote: str | None = field(default=None, repr=False)

    @classmethod
    def from_variables(cls, variables: Mapping[str, str] = os.environ) -> "Environment":
        jars = variables.get("TIDEMARK_SPARK_JARS")
        return cls(
            variables.get("TIDEMARK_DB"),
            Path(variables.get("TIDEMARK_PIPELINES", "include/pipelines")),
            Path(variables.get("TIDEMARK_HOME", ".")),
            Path(jars) if jars else None,
            variables.get("TIDEMARK_SPARK_MASTER") or "local[*]",
            variables.get("TIDEMARK_SPARK_REMOTE") or None,
        )

    def database(self) -> str:
        """Return the DSN of the manifest database; raises ``ConfigurationError`` if TIDEMARK_DB is not set."""
        if not self.dsn:
            raise ConfigurationError(
                "TIDEMARK_DB is not set",
                next_step="export TIDEMARK_DB=postgresql://user:password@host:port/database",
            )
        return self.dsn
