"""Addresses of the page and of Airflow's own pages: paths below that of Airflow, and whole ones for texts."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

MOUNT = "/tidemark"
LINKED = 3  # manifests that the note of a DAG run links to; each takes 80 of its 1,000 characters
ACTOR = re.compile(r"airflow (?P<dag>\S+) (?P<run>.+) (?P<task>[\w.-]+?)(?:\[(?P<map>\d+)\])? try (?P<number>\d+)")


def airflow_address() -> str:
    """``[api] base_url``, without a slash at its end; empty when it is not set: Airflow cannot guess it either."""
    from airflow.configuration import conf  # the paths below are also for who has no Airflow

    return str(conf.get("api", "base_url", fallback="")).rstrip("/")


def page_address(pipeline_name: str, manifest_id: int | None = None) -> str | None:
    """The page of a pipeline or a manifest, for who reads a log or a note; None when Airflow's address is not set."""
    airflow = airflow_address()
    manifest = "" if manifest_id is None else f"/manifests/{manifest_id}"
    return f"{airflow}{MOUNT}/pipelines/{quote(pipeline_name, safe='')}{manifest}" if airflow else None


def links(pipeline_name: str, manifests: list[int]) -> list[str]:
    """Lines for the note of a DAG run: the page of the pipeline, then those of the first manifests."""
    named = [(f"pipeline {pipeline_name}", page_address(pipeline_name))]
    named += [(f"manifest {each}", page_address(pipeline_name, each)) for each in manifests[:LINKED]]
    return [f"{name}: {address}" for name, address in named if address]


def run_path(dag_id: str, run_id: str) -> str:
    """A DAG run, below the address of Airflow."""
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
        """None for an actor that is no task."""
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
        """Its log, below the address of Airflow."""
        mapped = "" if self.map_index is None else f"/mapped/{self.map_index}"
        return f"{run_path(*self.run)}/tasks/{self.task_id}{mapped}?try_number={self.number}"
