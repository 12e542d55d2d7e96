"""`make run`: real flights from Kafka through Airflow and Spark into a lake, with one slice killed on the way.

Safe to repeat from whatever state is there: flights in the topic are not loaded again, and a second run finds nothing
new. Ends with nothing running; ``WrongResult`` (exit status 1) when the files do not hold the published totals.
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
from sandbox.demo.report import Moment, Report
from sandbox.demo.totals import Totals, count, listed
from sandbox.errors import WrongResult
from sandbox.services.airflow import Airflow
from sandbox.services.airflow_api import TaskInstance
from sandbox.services.clock import Clock
from sandbox.services.stack import Stack

PIPELINE = "flights"
FAILPOINT = "publish.mid"
ENVIRONMENT = {"TIDEMARK_FAILPOINT": f"{FAILPOINT}:kill9"}
# Written by the first process that reaches the failpoint, a moment before it dies.
CLAIM = STATE / "_failpoints" / f"{FAILPOINT}-kill9"


def run() -> None:
    """The whole demo, then where the time went."""
    clock, report = Clock(), Report()
    with Stack(STATE, clock, ENVIRONMENT) as stack:
        show(stack, report)
    report.say("\nEverything is stopped; the lake stays in .tidemark/lake. The same again finds nothing new: make run")
    report.times(set_up_times(), clock)


def show(stack: Stack, report: Report) -> None:
    """Load, run the DAG, kill a slice, count; the services stay up."""
    demo = Demo(stack, report)
    demo.load()
    demo.process()
    demo.conclude()


def set_up_times() -> dict[str, float]:
    """How long the set-up took just before, by step."""
    found: dict[str, float] = json.loads(TIMES.read_text()) if TIMES.exists() else {}
    return {name: seconds for name, seconds in found.items() if seconds >= 0.05}


class Demo:
    """One pass; keeps what the lake held at each moment worth showing."""

    def __init__(self, stack: Stack, report: Report) -> None:
        self.stack = stack
        self.report = report
        self.lake = stack.state / "lake"
        self.moments: list[Moment] = []
        self.killed_before = CLAIM.exists()
        self._said = ""
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
        """Trigger the DAG and follow it to its end; ``WrongResult`` if that is not success."""
        with self.report.doing("waiting for Airflow"):
            airflow = self.stack.wait_airflow()
            with self.stack.clock.step("DAG known"):
                airflow.wait_dag(PIPELINE)
        self.report.say(f"Airflow is up: {airflow.url}")
        airflow.unpause(PIPELINE)
        self._finish_what_was_interrupted(airflow)
        run_id = airflow.trigger(PIPELINE)
        state = self._follow(airflow, run_id, "the DAG is running")
        self._note("after the run", self._listed())
        if state != "success":
            what = f"the DAG run ended as {state}\n{_last_words(airflow, run_id)}"
            raise WrongResult(what, next_step="read the log above")
        self._say_how_it_was_retried(airflow.task_instances(PIPELINE, run_id))

    def _finish_what_was_interrupted(self, airflow: Airflow) -> None:
        """Let runs of a demo that was killed come to their end, and have done what they left unfinished."""
        for one in airflow.runs(PIPELINE):
            if one["state"] in ("queued", "running"):
                self.report.say(f"run {one['dag_run_id']} was interrupted; it goes on first")
                self._follow(airflow, one["dag_run_id"], "finishing the interrupted run")
        states = {one["state"] for one in json.loads(self._tidemark("manifests", PIPELINE, "--json"))}
        if states - {"done"}:
            self.report.say("manifests of an earlier run are unfinished; they come first")
            self._follow(airflow, airflow.trigger(PIPELINE, {"retry_unfinished": True}), "finishing them")

    def _follow(self, airflow: Airflow, run_id: str, doing: str) -> str:
        self._finished = 0
        with self.stack.clock.step("DAG run"), self.report.doing(doing):
            return airflow.wait_run(PIPELINE, run_id, self._progress)

    def conclude(self) -> None:
        """Print manifests, lag and totals; ``WrongResult`` when anything differs from what it must be."""
        with self.stack.clock.step("counting and auditing"):
            manifests = json.loads(self._tidemark("manifests", PIPELINE, "--json"))
            lag = sum(one["lag"] for one in json.loads(self._tidemark("lag", PIPELINE, "--json")))
            self._tidemark("audit", PIPELINE)
            self.report.manifests(manifests)
            self.report.moments(self.moments)
            totals = self.moments[-1][2]
            self.report.checks(totals)
        read, written, dead = (_total(manifests, name) for name in ("read", "written", "dead_lettered"))
        files = sum(len(one["objects"]) for one in manifests)
        self.report.say(
            f"\n{len(manifests)} manifests: {read:,} records in, {written:,} out, {dead:,} dead letters, "
            f"{files:,} files, lag {lag:,}; tidemark audit finds no difference"
        )
        wrong = totals.wrong
        wrong += [f"manifest {one['id']} is {one['state']}" for one in manifests if one["state"] != "done"]
        wrong += [f"{files:,} files are recorded, {totals.files:,} are there"] if files != totals.files else []
        wrong += [f"lag is {lag:,}"] if lag else []
        if wrong:
            raise WrongResult(
                "the result is wrong: " + "; ".join(wrong), next_step="tidemark audit flights; make clean"
            )

    def _listed(self) -> Totals:
        return count(lambda: listed(self.lake))

    def _published(self) -> Totals:
        """Slices and rows of one answer: asked for one after the other they may be of two moments."""
        return count(lambda: [one["path"] for one in json.loads(self._tidemark("objects", PIPELINE, "--json"))])

    def _note(self, when: str, totals: Totals) -> None:
        self.moments.append((when, self.stack.clock.elapsed, totals))
        self.report.say(f"  {when}: {totals.rows:,} flights in {totals.files:,} files, {totals.distinct:,} distinct")
        if totals.distinct != totals.rows:
            raise WrongResult(
                f"{totals.rows - totals.distinct:,} flights are in the lake twice", next_step="report this"
            )

    def _progress(self, tasks: list[TaskInstance]) -> None:
        said = _summary(tasks)
        if said != self._said:
            self.report.say(f"  {said}")
            self._said = said
        if CLAIM.exists() and not self.killed_before:
            self.killed_before = True
            self.report.say("a slice was killed (SIGKILL) in the middle of publishing; Airflow will retry it")
            self._note("right after the kill", self._listed())
        finished = sum(one["task_id"] == "process" and one["state"] == "success" for one in tasks)
        if finished > self._finished:
            self._finished = finished
            published = self._published()
            if published.slices > self._slices:
                self._slices = published.slices
                self._note(f"{published.slices} slice{'s' if published.slices > 1 else ''} published", published)

    def _say_how_it_was_retried(self, tasks: list[TaskInstance]) -> None:
        slices = [one for one in tasks if one["task_id"] == "process" and one["map_index"] >= 0]
        if not slices:
            self.report.say("there was nothing new: no manifest was planned, nothing was processed")
        for one in slices:
            if one["try_number"] > 1 and CLAIM.exists():
                again = datetime.fromisoformat(one["start_date"]).timestamp() - CLAIM.stat().st_mtime
                name = one["rendered_map_index"] or f"slice {one['map_index']}"
                self.report.say(f"{name} was killed, and tried again by Airflow {again:.0f} s later")

    def _tidemark(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tidemark.cli", *arguments]
        environment = {**os.environ, **self.stack.environment}
        done = subprocess.run(command, env=environment, text=True, capture_output=True)
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise WrongResult(
                f"tidemark {' '.join(arguments)} ended with {done.returncode}:\n{said}", next_step="see above"
            )
        return done.stdout


def _total(manifests: list[dict[str, Any]], name: str) -> int:
    return sum((one["counts"] or {}).get(name, 0) for one in manifests)


def _summary(tasks: list[TaskInstance]) -> str:
    """ "plan success, process 1 running 2 success, close waiting"."""
    words = []
    for task in ("plan", "process", "close"):
        states: dict[str, int] = {}
        for one in tasks:
            if one["task_id"] == task:
                state = str(one["state"] or "waiting")
                states[state] = states.get(state, 0) + 1
        many = task == "process" and sum(states.values()) > 1
        words.append(f"{task} " + " ".join(f"{n} {state}" if many else state for state, n in sorted(states.items())))
    return ", ".join(words)


def _last_words(airflow: Airflow, run_id: str) -> str:
    """The end of the log of each failed task."""
    failed = [one for one in airflow.task_instances(PIPELINE, run_id) if one["state"] == "failed"]
    logs = [(one, airflow.task_log(PIPELINE, run_id, one)) for one in failed]
    return "\n".join(
        f"--- {one['task_id']} {one['map_index']}\n" + "\n".join(log.splitlines()[-30:]) for one, log in logs
    )
