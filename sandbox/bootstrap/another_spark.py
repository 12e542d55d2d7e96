"""`python -m sandbox.bootstrap.another_spark VERSION`: another PySpark than that of `.venv`, and its Kafka connector.

Prints the folder of its packages. `make test-spark` puts this folder first on PYTHONPATH, before `.venv`.
"""

import sys

from sandbox.bootstrap import jars
from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.checkout import STATE
from sandbox.errors import SandboxFailed


def main(version: str) -> None:
    """Fetch what is missing. Exits with 1 and a message for a version that no lock file names."""
    name = f"{jars.SPARK}{version}"
    try:
        others = [other for other in jars.sparks() if f"{jars.SPARK}{other}" != jars.spark_set()]
        if version not in others:
            raise SandboxFailed(
                f"there is no lock file for PySpark {version!r}",
                next_step=f"make test-spark VERSION=, one of {', '.join(others)}",
            )
        jars.fetch_for_tests(STATE, name)
        print(packages_of(name))
    except SandboxFailed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""])
