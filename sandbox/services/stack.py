"""PostgreSQL, Kafka, a Spark Connect server and Airflow, for Tidemark: the services of `make run` and `make up`."""

import fcntl
import json
import os
import shlex
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self, TextIO

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.errors import SandboxBusy
from sandbox.services.airflow import Airflow
from sandbox.services.broker import Broker
from sandbox.services.clock import Clock
from sandbox.services.kafka_programs import write_programs
from sandbox.services.postgres import Postgres
from sandbox.services.spark_server import SparkServer
from tidemark.database.migrate import migrate

DATABASE = "tidemark"
METADATA = "airflow"
SHELL_FILE = "env"
# Otherwise each command of Airflow in a shell prints ten lines of log, and a warning of a package that draws DAGs.
QUIET_AIRFLOW = {
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    "PYTHONWARNINGS": "ignore:Could not import graphviz",
}


class Stack:
    """All services of one state folder; the end of the block stops them and everything that they started.

    At the start of the block PostgreSQL and the broker answer, and Airflow is still starting; ``wait_airflow`` waits
    for it. Only one stack may use a state folder at a time (``SandboxBusy``). ``env``: variables for Airflow's tasks.
    """

    def __init__(self, state: Path, clock: Clock, env: Mapping[str, str] | None = None) -> None:
        self.state = state.resolve()
        self.clock = clock
        self.postgres = Postgres(self.state)
        self.broker = Broker(self.state, self.state / "jars" / "kafka")
        self.spark = SparkServer(self.state)
        self._env = dict(env or {})
        self._lock = LockFile(self.state / "run.lock")
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="stack")
        self._airflow: Airflow | None = None
        self._healthy: Future[Airflow] | None = None

    def __enter__(self) -> Self:
        self._lock.acquire()
        try:
            broker = self._pool.submit(self._start_broker)
            self._start_postgres()
            env = {**self.environment, **self._env}
            self.spark.begin(self.environment)
            # No scheduled runs yet: an hourly run would start at the same time as the demo's run and plan before it.
            self._airflow = Airflow(self.state, self.postgres.dsn(METADATA), env, schedules=False)
            self._healthy = self._pool.submit(self._start_airflow, self._airflow)
            broker.result()
            self._write_shell_file(self._airflow)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all services, also those that are still starting."""
        with self.clock.step("stopping"):
            if self._airflow is not None:
                self._airflow.stop()
            self._pool.shutdown()
            self.spark.stop()
            self.broker.stop()
            self.postgres.stop()
            (self.state / SHELL_FILE).unlink(missing_ok=True)
            self._lock.release()

    def wait_airflow(self) -> Airflow:
        """Return Airflow, once it and the Spark Connect server are healthy. Raises the error if one did not start."""
        assert self._healthy is not None, "not started"
        airflow = self._healthy.result()
        with self.clock.step("Spark"):
            self.spark.wait_ready()
        return airflow

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which Tidemark's command line and tasks find these services."""
        kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": self.broker.bootstrap_servers}}
        # With engine: submit, two threads for each slice: slices that Airflow runs at the same time share the cores.
        spark = {"conn_type": "spark", "host": "local[2]"}
        return {
            "TIDEMARK_DB": self.postgres.dsn(DATABASE),
            "TIDEMARK_HOME": str(self.state),
            "TIDEMARK_PIPELINES": str(CHECKOUT / "include" / "pipelines"),
            "TIDEMARK_SPARK_JARS": str(self.state / "jars" / "spark"),
            "TIDEMARK_SPARK_REMOTE": self.spark.remote,
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(kafka),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def ports(self) -> dict[str, int]:
        """Return the port of each service, by its name."""
        assert self._airflow is not None, "not started"
        return {
            "PostgreSQL": self.postgres.port, "Kafka": self.broker.port, "the Spark Connect server": self.spark.port,
            "Airflow": self._airflow.port,
        }  # fmt: skip

    def _write_shell_file(self, airflow: Airflow) -> None:
        """Write the variables for a shell, `. .tidemark/env`, in which tidemark, airflow and psql use these
        services.
        """
        path = self.state / SHELL_FILE
        path.touch(mode=0o600)
        path.write_text(shell_text(self.environment, airflow, self.postgres, self.broker))

    def _start_broker(self) -> None:
        with self.clock.step("Kafka"):
            self.broker.start()

    def _start_postgres(self) -> None:
        with self.clock.step("PostgreSQL"):
            self.postgres.start()
            for name in (DATABASE, METADATA):
                if not self.postgres.has_database(name):
                    self.postgres.create_database(name)
            migrate(self.postgres.dsn(DATABASE))

    def _start_airflow(self, airflow: Airflow) -> Airflow:
        with self.clock.step("Airflow's tables"):
            airflow.prepare()
        with self.clock.step("Airflow"):
            airflow.start()
            airflow.wait_healthy()
        return airflow


def shell_text(variables: Mapping[str, str], airflow: Airflow, postgres: Postgres, broker: Broker) -> str:
    """Return the text that a shell reads to use these services; ``variables`` are those of Tidemark."""
    settings = {
        **variables,
        **airflow.settings,
        **QUIET_AIRFLOW,
        **postgres.client_variables,
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    folders = (Path(sys.executable).parent, postgres.programs, write_programs(broker.state / "bin"))
    programs = "".join(f"{folder}{os.pathsep}" for folder in folders)
    return f'{"".join(lines)}export PATH={shlex.quote(programs)}"$PATH"\n'


class LockFile:
    """An exclusive lock with our process id in the file; the kernel releases it when our process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def acquire(self) -> None:
        """Take the lock. Raises ``SandboxBusy``, with the holder's process id, if another process holds it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            pid = file.read().strip()
            file.close()
            raise SandboxBusy(
                f"another `make run` or `make up` of this checkout is at work (process {pid})",
                next_step="wait for it, or stop it: make down",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Release the lock; no error if it is not held."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None
