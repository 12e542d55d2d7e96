"""Does through Airflow's REST API what a user does on its pages. Each call of Airflow's command line would import for 3
s.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpx

from sandbox.errors import SandboxFailed
from sandbox.services.processes import wait_until

TaskInstance = dict[str, Any]
FINAL = ("success", "failed")
ASKED = 4  # tries of 30 s each: a busy laptop may take longer than one of them
HEALTHY_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


class AirflowApi:
    """A client of one Airflow; logs in at the first call."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self.user = user
        self.password = password
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def close_client(self) -> None:
        """Close the connection; later calls fail."""
        self._client.close()

    def healthy(self) -> bool:
        """Return whether the database and all components report that they are healthy; false while nothing answers."""
        try:
            answer = self._client.get("/api/v2/monitor/health")
        except httpx.TransportError:
            return False
        parts = answer.json() if answer.status_code == 200 else {}
        return all((parts.get(name) or {}).get("status") == "healthy" for name in HEALTHY_PARTS)

    def wait_dag(self, dag_id: str, timeout: float = 180) -> None:
        """Return when Airflow knows the DAG. Raises, with the traceback, if a DAG file cannot be imported now."""
        began = datetime.now(UTC)
        wait_until(lambda: self._knows(dag_id, began), f"DAG {dag_id} to appear", timeout=timeout, interval=0.2)

    def _knows(self, dag_id: str, since: datetime) -> bool:
        """Return whether Airflow knows the DAG. Import errors before ``since`` belong to earlier files and are
        ignored.
        """
        if self._request("GET", f"/dags/{dag_id}", accept=(200, 404)).status_code == 200:
            return True
        for error in self._import_errors():
            if datetime.fromisoformat(error["timestamp"]) >= since:
                message = f"{error['filename']} cannot be imported:\n{error['stack_trace']}"
                raise SandboxFailed(message, next_step="correct the file")
        return False

    def number_of_dags(self) -> int:
        """Return the number of DAGs that Airflow knows and has a file for."""
        return int(self._request("GET", "/dags", params={"limit": 1}).json()["total_entries"])

    def import_errors(self) -> dict[str, str]:
        """Return, by file name, the end of the traceback of each DAG file that cannot be imported."""
        return {error["filename"]: error["stack_trace"] for error in self._import_errors()}

    def _import_errors(self) -> list[dict[str, str]]:
        errors: list[dict[str, str]] = self._request("GET", "/importErrors").json()["import_errors"]
        return errors

    def dag(self, dag_id: str) -> dict[str, Any]:
        """Return what the list of DAGs shows of one: tags, is_stale, has_import_errors, next_dagrun_run_after, .."""
        shown: dict[str, Any] = self._request("GET", f"/dags/{dag_id}").json()
        return shown

    def unpause(self, dag_id: str) -> None:
        """Allow runs of the DAG to start."""
        self._request("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def unpause_all(self, pattern: str) -> None:
        """Do the same as ``unpause``, at once for all DAGs whose id matches the SQL pattern."""
        options = {"dag_id_pattern": pattern, "update_mask": "is_paused"}
        self._request("PATCH", "/dags", params=options, json={"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Make runs wait that are started from now on."""
        self._request("PATCH", f"/dags/{dag_id}", json={"is_paused": True})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None, logical_date: datetime | None = None) -> str:
        """Start a manual run, as the form does, and return its run id. Without ``logical_date`` the run has none."""
        body = {"conf": conf or {}, "logical_date": logical_date.isoformat() if logical_date else None}
        return str(self._request("POST", f"/dags/{dag_id}/dagRuns", json=body).json()["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the state of a run: queued, running, success or failed."""
        return str(self._request("GET", f"/dags/{dag_id}/dagRuns/{run_id}").json()["state"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return every run of a DAG, newest first."""
        answer = self._request("GET", f"/dags/{dag_id}/dagRuns", params={"limit": 100, "order_by": "-id"})
        return list(answer.json()["dag_runs"])

    def number_of_runs(self, **chosen: str) -> int:
        """Return the number of runs of all DAGs; ``chosen`` are filters of Airflow's list of runs."""
        answer = self._request("GET", "/dags/~/dagRuns", params={"limit": 1, **chosen})
        return int(answer.json()["total_entries"])

    def runs_of_all(self, **chosen: str) -> list[dict[str, Any]]:
        """Return the runs of all DAGs; ``chosen`` as in ``number_of_runs``."""
        return self._all_pages("/dags/~/dagRuns", "dag_runs", chosen)

    def task_instances_of_all(self, **chosen: str) -> list[TaskInstance]:
        """Return the task instances of all runs of all DAGs; ``chosen`` are filters of Airflow's list of them."""
        return self._all_pages("/dags/~/dagRuns/~/taskInstances", "task_instances", chosen)

    def _all_pages(self, path: str, key: str, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the entries of all pages: Airflow gives at most 100 at a time."""
        listed: list[dict[str, Any]] = []
        while True:
            page = self._request("GET", path, params={"limit": 100, "offset": len(listed), **chosen}).json()
            listed += page[key]
            if not page[key] or len(listed) >= page["total_entries"]:
                return listed

    def asset_events(self, run_id: str) -> list[dict[str, Any]]:
        """Return the asset events of a run, oldest first: extra, timestamp, .."""
        return self._all_pages("/assets/events", "asset_events", {"source_run_id": run_id, "order_by": "timestamp"})

    def watchers(self, asset: str) -> list[str]:
        """Return the names of the watchers of an asset; a paused DAG has none."""
        assets = self._request("GET", "/assets", params={"name_pattern": asset}).json()["assets"]
        return [watcher["name"] for entry in assets if entry["name"] == asset for watcher in entry["watchers"]]

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """Return the run's task instances: task_id, map_index, state, try_number, start_date, end_date, .."""
        answer = self._request("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", params={"limit": 100})
        return list(answer.json()["task_instances"])

    def clear(self, dag_id: str, run_id: str, tasks: Iterable[tuple[str, int]] | None = None) -> None:
        """Clear some tasks of a run, as (task id, map index), or all of them, as the button does."""
        if tasks is None:
            self._request("POST", f"/dags/{dag_id}/dagRuns/{run_id}/clear", json={"dry_run": False})
            return
        task_ids = [list(task) for task in tasks]
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": task_ids, "only_failed": False}
        self._request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def set_task_state(self, dag_id: str, run_id: str, task: tuple[str, int], state: str) -> None:
        """Mark a task (task id, map index) as success, failed or skipped, as the button does."""
        task_id, map_index = task
        place = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        path = place if map_index < 0 else f"{place}/{map_index}"
        self._request("PATCH", path, json={"new_state": state})

    def backfill(
        self,
        dag_id: str,
        start: datetime,
        end: datetime,
        conf: dict[str, Any] | None = None,
        reprocess: str = "none",
        max_active_runs: int = 10,
    ) -> list[str]:
        """Create runs for the scheduled dates in [start, end], as `airflow backfill create` does. Return their run ids.

        ``reprocess``: which dates that already have a run do it again: none, failed or completed. These runs are
        cleared, and not returned. Airflow has one backfill of a DAG at a time: see ``wait_backfilled``.
        """
        body = {
            "dag_id": dag_id,
            "from_date": start.isoformat(),
            "to_date": end.isoformat(),
            "dag_run_conf": conf or {},
            "reprocess_behavior": reprocess,
            "max_active_runs": max_active_runs,
        }
        before = {run["dag_run_id"] for run in self.runs(dag_id)}
        self._request("POST", "/backfills", json=body)
        after = {run["dag_run_id"] for run in self.runs(dag_id) if run["run_type"] == "backfill"}
        return sorted(after - before)

    def wait_backfilled(self, dag_id: str, timeout: float = 90) -> None:
        """Return when no backfill of the DAG is open. Airflow checks every 30 s whether the runs of one have ended."""

        def all_ended() -> bool:
            return all(backfill["completed_at"] for backfill in self._backfills(dag_id))

        wait_until(all_ended, f"the backfill of {dag_id} to end", timeout=timeout, interval=0.5)

    def _backfills(self, dag_id: str) -> list[dict[str, Any]]:
        answer: dict[str, list[dict[str, Any]]] = self._request("GET", "/backfills", params={"dag_id": dag_id}).json()
        return answer["backfills"]

    def create_pool(self, name: str, slots: int) -> None:
        self._request("POST", "/pools", json={"name": name, "slots": slots, "include_deferred": False})

    def delete_pool(self, name: str) -> None:
        self._request("DELETE", f"/pools/{name}", accept=(204,))

    def set_pool_slots(self, slots: int) -> None:
        """Set how many tasks of all DAGs may run at a time; Airflow's default is 128."""
        self._request("PATCH", "/pools/default_pool", params={"update_mask": "slots"}, json={"slots": slots})

    def delete_dag(self, dag_id: str) -> None:
        """Delete the DAG with its runs; Airflow adds it again, paused, when it reads the file again.

        Its backfills are ended first: Airflow's scheduler dies if the row of an open one is deleted while it marks
        those whose runs have ended (StaleDataError), which it does every 30 s.
        """
        for backfill in self._backfills(dag_id):
            if not backfill["completed_at"]:
                self._request("PUT", f"/backfills/{backfill['id']}/cancel", accept=(200, 404, 409))
        self._request("DELETE", f"/dags/{dag_id}", accept=(200, 204, 404))

    def create_connection(self, conn_id: str, conn_type: str, host: str, **more: str | int) -> None:
        """Store a connection in Airflow's database. An environment variable for the same connection replaces it.

        ``more`` are its other fields: login, password, port, schema.
        """
        named = {"connection_id": conn_id, "conn_type": conn_type, "host": host}
        self._request("POST", "/connections", json={**named, **more})

    def delete_connection(self, conn_id: str) -> None:
        self._request("DELETE", f"/connections/{conn_id}", accept=(204,))

    def task_log(self, dag_id: str, run_id: str, task: TaskInstance) -> str:
        """Return the log of the newest try of a task instance, one line per entry."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
        answer = self._request("GET", path, params={"map_index": task["map_index"]}).json()
        return "\n".join(line for entry in answer["content"] for line in _lines(entry))

    def wait_run(
        self,
        dag_id: str,
        run_id: str,
        on_progress: Callable[[list[TaskInstance]], None] = lambda _: None,
        timeout: float = 600,
    ) -> str:
        """Wait for the end of a run and return its state. ``on_progress`` gets the task instances twice a second."""
        deadline = time.monotonic() + timeout
        while True:
            state = self.run_state(dag_id, run_id)
            on_progress(self.task_instances(dag_id, run_id))
            if state in FINAL:
                return state
            if time.monotonic() > deadline:
                raise SandboxFailed(f"run {run_id} is {state} after {timeout:.0f} s", next_step=f"look at {self.url}")
            time.sleep(0.5)

    def _log_in(self) -> None:
        answer = self._client.post("/auth/token", json={"username": self.user, "password": self.password})
        if answer.status_code not in (200, 201):
            raise SandboxFailed(f"Airflow refused the login of {self.user}: {answer.text}", next_step="make clean")
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def _request(
        self, method: str, path: str, *, accept: tuple[int, ...] = (200, 201), **options: Any
    ) -> httpx.Response:
        if "Authorization" not in self._client.headers:
            self._log_in()
        try:
            answer = self._answer(method, path, **options)
            if answer.status_code == 401:
                self._log_in()
                answer = self._answer(method, path, **options)
        except httpx.TransportError as error:
            raise SandboxFailed(
                f"Airflow does not answer: {error}",
                next_step="read airflow-api-server.log in the folder of logs (.tidemark/logs); when the machine was "
                "too busy, do the same again: it goes on where this ended",
            ) from error
        if answer.status_code not in accept:
            raise SandboxFailed(f"Airflow answered {answer.status_code} to {method} {path}: {answer.text[:500]}")
        return answer

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request. A GET is repeated if no answer comes in time; a request that changes something is sent
        once.
        """
        for _ in range(ASKED - 1 if method == "GET" else 0):
            with suppress(httpx.TimeoutException):
                return self._client.request(method, f"/api/v2{path}", **options)
        return self._client.request(method, f"/api/v2{path}", **options)


def _lines(entry: Any) -> list[str]:
    """Return a log entry as lines of text. Exceptions follow the message, the innermost cause last."""
    if not isinstance(entry, dict):
        return [str(entry)]
    errors = entry.get("error_detail") or ()
    return [str(entry.get("event", entry)), *(f"{error['exc_type']}: {error['exc_value']}" for error in errors)]
