"""`make run`: real flights from Kafka through Airflow and Spark into a lake, with one slice killed on the way.

Safe to repeat: flights in the topic are not loaded again, a second run finds nothing new, and an interrupted run is
finished first. No service runs afterwards. Raises ``WrongResult`` (exit status 1) if the files do not have the
published totals.
"""

import json
import os
import subprocess
import sys
from datetime import datetime
from typing import Any

from sandbox.bootstrap.checkout import STATE
from sandbox.bootstrap.install import TIMES
from sandbox.demo import flights
from sandbox.demo.lake_counts import LakeCounts, count, listed
from sandbox.demo.report import Moment, Report
from sandbox.errors import WrongResult
from sandbox.services.airflow import Airflow
from sandbox.services.airflow_api import TaskInstance
from sandbox.services.clock import Clock
from sandbox.services.stack import Stack

PIPELINE = "flights"
FAILPOINT = "publish.mid"
ENVIRONMENT = {"TIDEMARK_FAILPOINT": f"{FAILPOINT}:kill9"}
# The process that is killed at the failpoint writes this file just before it dies.
CLAIM = STATE / "_failpoints" / f"{FAILPOINT}-kill9"


def run() -> None:
    clock, report = Clock(), Report()
    with Stack(STATE, clock, ENVIRONMENT) as stack:
        show(stack, report)
    report.say("\nEverything is stopped; the lake stays in .tidemark/lake. Another make run finds nothing new")
    report.times(set_up_times(), clock)


def show(stack: Stack, report: Report) -> None:
    """Load the flights, run the DAG, kill a slice, count. The services stay up."""
    demo = Demo(stack, report)
    demo.load()
    demo.process()
    demo.conclude()


def set_up_times() -> dict[str, float]:
    """Return the seconds of each step of the set-up that ran just before."""
    times: dict[str, float] = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    return {name: seconds for name, seconds in times.items() if seconds >= 0.05}


class Demo:
    """One pass through the demo; ``moments`` are the counts of the lake on the way."""

    def __init__(self, stack: Stack, report: Report) -> None:
        self.stack = stack
        self.report = report
        self.lake = stack.state / "lake"
        self.moments: list[Moment] = []
        self.killed_before = CLAIM.exists()
        self._printed = ""
        self._finished = 0
        self._slices = 0

    def load(self) -> None:
        """Put the flights into Kafka while Airflow is starting."""
        with self.stack.clock.step("loading flights"), self.report.doing("flights into Kafka"):
            sent = flights.ensure_loaded(self.stack.broker)
        here = f"topic {flights.TOPIC}, {flights.PARTITIONS} partitions"
        self.report.say(
            f"{sent:,} flights sent to {here}" if sent else f"all {flights.FLIGHTS:,} flights are in {here} already"
        )
        self._note("before the run", self._listed())

    def process(self) -> None:
        """Trigger the DAG and follow the run to its end. Raises ``WrongResult`` unless it succeeds."""
        with self.report.doing("waiting for Airflow"):
            airflow = self.stack.wait_airflow()
            with self.stack.clock.step("DAG known"):
                airflow.wait_dag(PIPELINE)
        self.report.say(f"Airflow is up: {airflow.url}")
        airflow.unpause(PIPELINE)
        self._finish_interrupted_runs(airflow)
        run_id = airflow.trigger(PIPELINE)
        state = self._follow(airflow, run_id, "the DAG is running")
        self._note("after the run", self._listed())
        if state != "success":
            message = f"the DAG run ended as {state}\n{_ends_of_logs(airflow, run_id)}"
            raise WrongResult(message, next_step="read the log above")
        self._say_how_it_was_retried(airflow.task_instances(PIPELINE, run_id))

    def _finish_interrupted_runs(self, airflow: Airflow) -> None:
        """Wait for the DAG runs of a demo that was killed, and retry the manifests that they left unfinished."""
        for run in airflow.runs(PIPELINE):
            if run["state"] in ("queued", "running"):
                self.report.say(f"run {run['dag_run_id']} was interrupted; it is finished first")
                self._follow(airflow, run["dag_run_id"], "finishing the interrupted run")
        states = {manifest["state"] for manifest in json.loads(self._tidemark("manifests", PIPELINE, "--json"))}
        if states - {"done"}:
            self.report.say("manifests of an earlier run are unfinished; they are finished first")
            self._follow(airflow, airflow.trigger(PIPELINE, {"retry_unfinished": True}), "finishing them")

    def _follow(self, airflow: Airflow, run_id: str, doing: str) -> str:
        self._finished = 0
        with self.stack.clock.step("DAG run"), self.report.doing(doing):
            return airflow.wait_run(PIPELINE, run_id, self._progress)

    def conclude(self) -> None:
        """Print manifests, lag and totals. Raises ``WrongResult`` if a number is not the expected one."""
        with self.stack.clock.step("counting and auditing"):
            manifests = json.loads(self._tidemark("manifests", PIPELINE, "--json"))[::-1]  # oldest first
            lag = sum(partition["lag"] for partition in json.loads(self._tidemark("lag", PIPELINE, "--json")))
            self._tidemark("audit", PIPELINE)
            self.report.manifests(manifests)
            self.report.moments(self.moments)
            counts = self.moments[-1][2]
            self.report.checks(counts)
        read, written, dead = (_total(manifests, name) for name in ("read", "written", "dead_lettered"))
        files = sum(len(manifest["objects"]) for manifest in manifests)
        self.report.say(
            f"\n{len(manifests)} manifests: {read:,} records in, {written:,} out, {dead:,} dead letters, "
            f"{files:,} files, lag {lag:,}; tidemark audit finds no difference"
        )
        wrong = counts.wrong
        wrong += [f"manifest {row['id']} is {row['state']}" for row in manifests if row["state"] != "done"]
        wrong += [f"{files:,} files are published, {counts.files:,} exist"] if files != counts.files else []
        wrong += [f"lag is {lag:,}"] if lag else []
        if wrong:
            raise WrongResult(
                "the result is wrong: " + "; ".join(wrong), next_step="tidemark audit flights; make clean"
            )

    def _listed(self) -> LakeCounts:
        return count(lambda: listed(self.lake))

    def _published(self) -> LakeCounts:
        """Count slices and rows from one answer: two requests could show two different moments."""
        return count(lambda: [row["path"] for row in json.loads(self._tidemark("objects", PIPELINE, "--json"))])

    def _note(self, when: str, counts: LakeCounts) -> None:
        self.moments.append((when, self.stack.clock.elapsed, counts))
        self.report.say(f"  {when}: {counts.rows:,} flights in {counts.files:,} files, {counts.distinct:,} distinct")
        if counts.distinct != counts.rows:
            raise WrongResult(
                f"{counts.rows - counts.distinct:,} flights are in the lake twice", next_step="report this"
            )

    def _progress(self, tasks: list[TaskInstance]) -> None:
        summary = _summary(tasks)
        if summary != self._printed:
            self.report.say(f"  {summary}")
            self._printed = summary
        if CLAIM.exists() and not self.killed_before:
            self.killed_before = True
            self.report.say("a slice was killed (SIGKILL) in the middle of publishing; Airflow will retry it")
            self._note("right after the kill", self._listed())
        finished = sum(task["task_id"] == "process" and task["state"] == "success" for task in tasks)
        if finished > self._finished:
            self._finished = finished
            published = self._published()
            if published.slices > self._slices:
                self._slices = published.slices
                self._note(f"{published.slices} slice{'s' if published.slices > 1 else ''} published", published)

    def _say_how_it_was_retried(self, tasks: list[TaskInstance]) -> None:
        slices = [task for task in tasks if task["task_id"] == "process" and task["map_index"] >= 0]
        if not slices:
            self.report.say("there was nothing new: no manifest was planned, nothing was processed")
        for task in slices:
            if task["try_number"] > 1 and CLAIM.exists():
                delay = datetime.fromisoformat(task["start_date"]).timestamp() - CLAIM.stat().st_mtime
                name = task["rendered_map_index"] or f"slice {task['map_index']}"
                self.report.say(f"{name} was killed, and tried again by Airflow {delay:.0f} s later")

    def _tidemark(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tidemark.cli", *arguments]
        environment = {**os.environ, **self.stack.environment}
        done = subprocess.run(command, env=environment, text=True, capture_output=True)
        if done.returncode != 0:
            output = f"{done.stdout}{done.stderr}".strip()
            raise WrongResult(
                f"tidemark {' '.join(arguments)} ended with {done.returncode}:\n{output}", next_step="see above"
            )
        return done.stdout


def _total(manifests: list[dict[str, Any]], name: str) -> int:
    return sum((manifest["counts"] or {}).get(name, 0) for manifest in manifests)


def _summary(tasks: list[TaskInstance]) -> str:
    """Return the states of tasks, such as: plan success, process 1 running 2 success, close waiting."""
    parts = []
    for task_id in ("plan", "process", "close"):
        states: dict[str, int] = {}
        for task in tasks:
            if task["task_id"] == task_id:
                state = str(task["state"] or "waiting")
                states[state] = states.get(state, 0) + 1
        if task_id == "process" and sum(states.values()) > 1:
            words = [f"{count} {state}" for state, count in sorted(states.items())]
        else:
            words = list(states)
        parts.append(" ".join([task_id, *words]))
    return ", ".join(parts)


def _ends_of_logs(airflow: Airflow, run_id: str) -> str:
    """Return the end of the log of each failed task."""
    failed = [task for task in airflow.task_instances(PIPELINE, run_id) if task["state"] == "failed"]
    logs = [(task, airflow.task_log(PIPELINE, run_id, task)) for task in failed]
    return "\n".join(
        f"--- {task['task_id']} {task['map_index']}\n" + "\n".join(log.splitlines()[-30:]) for task, log in logs
    )
