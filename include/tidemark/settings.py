"""What the environment says: TIDEMARK_DB, _PIPELINES, _HOME, _SPARK_JARS and _SPARK_MASTER."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import ConfigurationError


@dataclass(frozen=True)
class Settings:
    """``pipelines`` is the folder of YAML files, and relative lake roots start at ``home``.

    ``spark_jars`` is the folder with the Kafka connector (None: the cluster has it). The command line uses
    ``spark_master``; in Airflow the Spark connection names the master.
    """

    dsn: str | None
    pipelines: Path
    home: Path
    spark_jars: Path | None
    spark_master: str = "local[*]"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        jars = environment.get("TIDEMARK_SPARK_JARS")
        return cls(
            environment.get("TIDEMARK_DB"),
            Path(environment.get("TIDEMARK_PIPELINES", "include/pipelines")),
            Path(environment.get("TIDEMARK_HOME", ".")),
            Path(jars) if jars else None,
            environment.get("TIDEMARK_SPARK_MASTER") or "local[*]",
        )

    def database(self) -> str:
        """The DSN of the manifest database; ``ConfigurationError`` when TIDEMARK_DB is not set."""
        if not self.dsn:
            raise ConfigurationError(
                "TIDEMARK_DB is not set",
                next_step="export TIDEMARK_DB=postgresql://user:password@host:port/database",
            )
        return self.dsn
