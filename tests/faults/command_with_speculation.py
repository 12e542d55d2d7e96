"""The command line with Spark's speculation, which runs slow tasks twice, because a cluster may enable it by
default."""

from pathlib import Path

from tidemark.cli import main
from tidemark.spark import session

EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.2",
}
settings_of_ours = session.spark_configuration


def speculative(jars: Path | None) -> dict[str, str]:
    return {**settings_of_ours(jars), **EAGER}


if __name__ == "__main__":
    session.spark_configuration = speculative
    main.main()
