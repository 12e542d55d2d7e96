"""A real Airflow: API server, scheduler (LocalExecutor), DAG processor and triggerer, on free ports, metadata in
PostgreSQL.

The ports stay the same for a later Airflow with the same state folder, unless another process has taken one. These are
four child processes, each with its own guard (see `guard.py`). `airflow standalone` would take longer, and leave its
children running after SIGTERM.
"""

import json
import os
import secrets
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.errors import SandboxFailed
from sandbox.services.airflow_api import AirflowApi
from sandbox.services.processes import Child, kept_ports, wait_until

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")

# The workers of a killed scheduler keep its database session open, and with it the lock for queueing tasks. No other
# scheduler starts a task until PostgreSQL ends that session.
END_IDLE = "?options=-c%20idle_in_transaction_session_timeout%3D30s"

# Scheduler and DAG processor fork for each task and each DAG file. These modules are imported once, before the forks.
# Otherwise each fork needs 1 s of a core to import them, and 2 s if it works on a Spark Connect server.
BEFORE_FORKS = {
    "scheduler": "airflow.dag_processing.dagbag, confluent_kafka.admin, tidemark.airflow.dag, "
    "tidemark.sinks.files.sink, tidemark.sources.kafka.source, tidemark.spark.connected",
    "dag-processor": "tidemark.airflow.dag",
}
WITH_IMPORTS = """
import sys
from airflow.__main__ import main
import {modules}
sys.argv[0] = "airflow"
sys.exit(main())
"""


class Airflow(AirflowApi):
    """One Airflow; start it with ``with`` or ``start``. The metadata database keeps its history.

    ``env``: more environment variables for all components and tasks. ``settings``: the variables with which `airflow`
    in a shell uses this Airflow. ``schedules``: false starts no scheduled runs until ``honour_schedules``.
    ``parallelism``: the most tasks at a time, each with a Spark of its own. ``parse_interval``: seconds after which DAG
    files are read again, which takes 2 s of one core.
    """

    def __init__(
        self,
        state: Path,
        metadata_dsn: str,
        env: Mapping[str, str],
        *,
        dags: Path = CHECKOUT / "dags",
        plugins: Path = CHECKOUT / "plugins",
        schedules: bool = True,
        parallelism: int = 4,
        parse_interval: int = 60,
    ) -> None:
        self.dags = dags
        self.home = state.resolve() / "airflow"
        self.logs = state.resolve() / "logs"
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, *self._log_ports = kept_ports(self.home / "ports.json", 3)
        self._metadata_dsn = metadata_dsn
        self._secrets = self._kept_secrets()
        self._children: list[Child] = []
        self._components: dict[str, Child] = {}
        self._starting = threading.Lock()
        self._stopped = False
        self.settings = self._settings(metadata_dsn, dags, plugins, schedules)
        self.env = {
            **os.environ,
            **self.settings,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "AIRFLOW__CORE__PARALLELISM": str(parallelism),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": str(parse_interval),
            # With compiled modules Airflow starts in 9 s instead of 16; an empty value lets Python write them.
            "PYTHONDONTWRITEBYTECODE": "",
            **env,
        }
        super().__init__(f"http://127.0.0.1:{self.port}", "admin", self._secrets["password"])

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        self.wait_healthy()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Create or upgrade the metadata tables. Quick if this version of Airflow has done it for this database."""
        stamp = self.home / "metadata.json"
        wanted = json.dumps([version("apache-airflow-core"), self._metadata_dsn.rpartition("/")[2]])
        if stamp.exists() and stamp.read_text() == wanted:
            return
        program = "from airflow.utils.db import initdb; initdb()"
        migration = self._child("migration", [sys.executable, "-c", program])
        wait_until(lambda: not migration.running, "Airflow's tables", timeout=180)
        migration.stop()
        if migration.exit_code != 0:
            raise migration.failure("Airflow's tables could not be created")
        stamp.write_text(wanted)

    def start(self) -> None:
        """Start the components without waiting for them. Call ``prepare`` before and ``wait_healthy`` after."""
        for name in COMPONENTS:
            self._start_component(name)

    def _start_component(self, name: str) -> None:
        if name in BEFORE_FORKS:
            command = [sys.executable, "-P", "-c", WITH_IMPORTS.format(modules=BEFORE_FORKS[name])]
        else:
            command = [str(Path(sys.executable).with_name("airflow"))]
        self._components[name] = self._child(name, [*command, name])

    def parse(self) -> None:
        """Make Airflow read the DAG files again at once. It touches them, so they must be a copy that only this Airflow
        uses.
        """
        for file in self.dags.glob("*.py"):
            file.touch()

    def _knows(self, dag_id: str, since: datetime) -> bool:
        """Do the same, but restart a dead DAG processor: it ends if a DAG is deleted while it writes the DAG
        (StaleDataError).
        """
        if not self._components["dag-processor"].running:
            self._start_component("dag-processor")
        return super()._knows(dag_id, since)

    def pid(self, component: str) -> int:
        """Return the process id of a component: api-server, scheduler, ..; its own children are below it."""
        return self._components[component].pid

    def kill_component(self, name: str) -> None:
        """Send SIGKILL to a component. The tasks of a killed scheduler go on; the triggers of a triggerer die too."""
        self._components[name].kill(tree=name == "triggerer")

    def start_component(self, name: str) -> None:
        """Start a component after ``kill_component``; it takes over the tasks or triggers of the dead one."""
        self._start_component(name)

    def honour_schedules(self) -> None:
        """Start scheduled runs from now on; no task may be running."""
        self.env["AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE"] = "True"
        self.restart_scheduler()

    def restart_scheduler(self) -> None:
        """Stop the scheduler with its workers and start another with the current ``env``; no task may be running."""
        self._components["scheduler"].stop()
        self._start_component("scheduler")

    def stop(self) -> None:
        """Stop all components and all tasks that they started. Return when all have ended; nothing can start
        afterwards.
        """
        with self._starting:
            self._stopped = True
        for child in self._children:
            child.begin_stop()
        for child in self._children:
            child.stop()
        self.close_client()

    def _child(self, name: str, command: list[str]) -> Child:
        with self._starting:
            if self._stopped:
                raise SandboxFailed("Airflow was stopped while it was starting")
            log = self.logs / f"airflow-{name}.log"
            self._children.append(Child(f"Airflow's {name}", command, log, env=self.env, cwd=self.home, grace=5))
            return self._children[-1]

    def wait_healthy(self, timeout: float = 120) -> None:
        """Return when all components are healthy. Raises if one of them ends."""

        def healthy() -> bool:
            for child in self._components.values():
                if not child.running:
                    raise child.failure(f"{child.name} ended with exit code {child.exit_code}")
            return self.healthy()

        wait_until(healthy, "Airflow to be healthy", timeout=timeout, interval=0.2)

    def _kept_secrets(self) -> dict[str, str]:
        """Return the keys that all components share, and the admin's password: random, created once per state
        folder.
        """
        path = self.home / "secrets.json"
        kept: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        if set(kept) != {"api", "jwt", "fernet", "password"}:
            kept = {name: secrets.token_urlsafe(32) for name in ("api", "jwt")}
            kept["fernet"] = urlsafe_b64encode(secrets.token_bytes(32)).decode()
            kept["password"] = secrets.token_urlsafe(9)
            for name, content in (("secrets.json", kept), ("passwords.json", {"admin": kept["password"]})):
                (self.home / name).touch(mode=0o600)
                (self.home / name).write_text(json.dumps(content))
        return kept

    def _settings(self, dsn: str, dags: Path, plugins: Path, schedules: bool) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.port}"
        settings: dict[tuple[str, str], object] = {
            ("database", "sql_alchemy_conn"): dsn.replace("postgresql://", "postgresql+psycopg2://") + END_IDLE,
            ("database", "sql_alchemy_conn_async"): dsn.replace("postgresql://", "postgresql+asyncpg://"),
            ("core", "executor"): "LocalExecutor",
            ("core", "load_examples"): False,
            ("operators", "default_deferrable"): True,
            ("core", "dags_folder"): dags,
            ("core", "plugins_folder"): plugins,
            # By default a DAG that changes twice within 30 s keeps the first change until its file is read once more,
            # although its schedule is already that of the second change.
            ("core", "min_serialized_dag_update_interval"): 0,
            # Without it each component generates its own key, or connections are stored unencrypted.
            ("core", "fernet_key"): self._secrets["fernet"],
            ("core", "execution_api_server_url"): f"{url}/execution/",
            ("core", "simple_auth_manager_passwords_file"): self.home / "passwords.json",
            ("api", "host"): "127.0.0.1",
            ("api", "port"): self.port,
            ("api", "base_url"): url,
            ("api", "secret_key"): self._secrets["api"],
            ("api_auth", "jwt_secret"): self._secrets["jwt"],
            ("logging", "worker_log_server_port"): self._log_ports[0],
            ("logging", "trigger_log_server_port"): self._log_ports[1],
            ("logging", "colored_console_log"): False,
            ("scheduler", "use_job_schedule"): schedules,
            # The scheduler notices a dead task and starts its retry within one or two seconds instead of five.
            ("scheduler", "scheduler_idle_sleep_time"): 0.3,
            ("scheduler", "scheduler_heartbeat_sec"): 2,
            ("scheduler", "job_heartbeat_sec"): 2,
            # Tasks of a scheduler that was killed are tried again after 90 s without a sign of life instead of 300.
            ("scheduler", "task_instance_heartbeat_timeout"): 90,
            # A scheduler that starts right after another was killed looks for its tasks this often, not every 300 s.
            # It takes the other one for dead after 30 s without a sign of life.
            ("scheduler", "orphaned_tasks_check_interval"): 10,
            ("dag_processor", "refresh_interval"): 5,
            ("dag_processor", "parsing_processes"): 1,
        }
        variables = {f"AIRFLOW__{section}__{key}".upper(): str(value) for (section, key), value in settings.items()}
        return {"AIRFLOW_HOME": str(self.home), **variables}
