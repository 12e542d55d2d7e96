"""Addresses of the page and of Airflow's own pages: as paths below Airflow's address, or whole for texts."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

MOUNT = "/tidemark"
LINKED = 3  # manifests that the note of a DAG run links to; each takes 80 of its 1,000 characters
ACTOR = re.compile(
    r"airflow (?P<dag>\S+) (?P<run>.+) (?P<task>[\w.-]+?)(?:\[(?P<map>\d+)\])? try (?P<number>\d+)(?: on \S+)?"
)


def airflow_address() -> str:
    """Return ``[api] base_url`` without a slash at its end; empty if it is not set, since Airflow cannot guess it
    either.
    """
    from airflow.configuration import conf  # imported here: the paths below are used without Airflow, too

    return str(conf.get("api", "base_url", fallback="")).rstrip("/")


def page_address(pipeline_name: str, manifest_id: int | None = None) -> str | None:
    """Return the address of the page of a pipeline or a manifest, for logs and notes; None if Airflow's address is not
    set.
    """
    airflow = airflow_address()
    manifest = "" if manifest_id is None else f"/manifests/{manifest_id}"
    return f"{airflow}{MOUNT}/pipelines/{quote(pipeline_name, safe='')}{manifest}" if airflow else None


def links(pipeline_name: str, manifests: list[int]) -> list[str]:
    """Return lines for the note of a DAG run: the page of the pipeline, then those of the first manifests."""
    named = [(f"pipeline {pipeline_name}", page_address(pipeline_name))]
    named += [(f"manifest {each}", page_address(pipeline_name, each)) for each in manifests[:LINKED]]
    return [f"{name}: {address}" for name, address in named if address]


def run_path(dag_id: str, run_id: str) -> str:
    """Return the path of a DAG run, below the address of Airflow."""
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


@dataclass(frozen=True)
class TaskTry:
    """One try of a task of Airflow, as ``lookup.opened`` writes it into the history as the actor."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None
    number: int

    @classmethod
    def of(cls, actor: str) -> Self | None:
        """Return the task that an actor names; None if the actor is no task."""
        words = ACTOR.fullmatch(actor)
        if words is None:
            return None
        index = None if words["map"] is None else int(words["map"])
        return cls(words["dag"], words["run"], words["task"], index, int(words["number"]))

    @property
    def run(self) -> tuple[str, str]:
        return self.dag_id, self.run_id

    @property
    def log_path(self) -> str:
        """Return the path of its log, below the address of Airflow."""
        mapped = "" if self.map_index is None else f"/mapped/{self.map_index}"
        return f"{run_path(*self.run)}/tasks/{self.task_id}{mapped}?try_number={self.number}"
