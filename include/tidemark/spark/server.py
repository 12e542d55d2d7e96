"""The command line that starts a Spark Connect server with everything that manifests need, for
``tidemark spark serve``.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tidemark.environment import Environment
from tidemark.spark.connected import PACKAGE
from tidemark.spark.masters import is_local
from tidemark.spark.session import driver_configuration, own_spark, spark_configuration
from tidemark.spark.shipped import package_hash, package_zip
from tidemark.version import PACKAGE as FOLDER

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
# The plan of a job contains the options of its source. Spark keeps the plan as text for its page and its events.
REDACTED_TEXT = r"(?s)options \{.*?\n\s*\}"
ABANDONED = "1m"  # the time after which a job without its client is ended; Spark's own default is 5 minutes


def server_properties(environment: Environment, host: str, port: int) -> dict[str, str]:
    """Return the properties of the server. The properties of a pipeline file are set for its session, not here."""
    return {
        **spark_configuration(environment.spark_jars),
        "spark.app.name": "tidemark spark serve",
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.execute.manager.detachedTimeout": ABANDONED,
        "spark.redaction.string.regex": REDACTED_TEXT,
        "spark.python.daemon.module": "tidemark.spark.python_daemon",
        "spark.log.level": "WARN",
        PACKAGE: package_hash(),
    }


def server_command(
    environment: Environment, master: str, host: str, port: int, folder: Path, conf: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment of the process to start. ``folder`` is an empty one, the working folder of its
    JVM.

    ``conf`` replaces our properties. Executors of a cluster get our package from the server; Python workers of a local
    master find the package of this process.
    """
    home = own_spark()
    properties = {**server_properties(environment, host, port), **conf}
    properties = driver_configuration(master, folder, properties, None, environment.spark_jars)
    settings = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
    if not is_local(master):
        settings += ["--py-files", str(package_zip(environment.home))]
    variables = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])),
    }
    arguments = [str(home / "bin" / "spark-submit"), "--class", CLASS, "--master", master, *settings, "spark-internal"]
    return arguments, variables
