"""The figures of a fleet as Markdown, for a terminal and for `bench/README.md`."""

import statistics
from importlib.metadata import version
from typing import Any

PIPELINES, LONGEST_MINUTES = 200, 20
LONGEST_BY_HAND_S = 10.0
FILES, LONGEST_PARSE_S = 1_000, 10.0


def text(of: dict[str, Any]) -> str:
    """Return all figures of one measurement."""
    return "\n\n".join(
        [_runs(of), _processor(of["processor"]), _database(of["database"]), _by_hand(of), _parsing(of["parsing"])]
    )


def _runs(of: dict[str, Any]) -> str:
    number, counted = of["pipelines"], of["counted"]
    title = (
        f"**{number} pipelines are due at once**, each with {of['records']:,} new records, over one Spark Connect "
        f"server that stays up (target: {PIPELINES} within {LONGEST_MINUTES} minutes, which is "
        f"{LONGEST_MINUTES * 60 / PIPELINES:.1f} s each):"
    )
    at_once = (
        f"- At most {of['processing_at_once']} manifests were at work at once (the pool has {of['slots']} slots), and "
        f"{of['tasks_at_once']} tasks (Airflow {version('apache-airflow-core')} may start {of['tasks']})."
    )
    done = (
        f"- {counted['done']} of {counted['manifests']} manifests are done, {counted['read']:,} records are read and "
        f"{counted['written']:,} written. The lake has {counted['rows']:,} rows of {counted['records']:,} records."
    )
    lines = [
        f"- All have ended after {of['wall']:,.0f} s, which is {of['wall'] / number:.1f} s each.",
        f"- A run takes {of['run']:.1f} s from its start to its end (median), most of it waiting for its turn.",
        f"- {_tasks(of['tasks_of_runs'])}",
    ]
    return "\n".join([title, "", *lines, at_once, done])


def _processor(seconds: dict[str, float]) -> str:
    rows = [f"| {kind} | {used:.2f} s |" for kind, used in [*seconds.items(), ("in all", sum(seconds.values()))]]
    return "\n".join(["| processor time of one run | |", "|---|---|", *rows])


def _database(of: dict[str, dict[str, float]]) -> str:
    sums = {name: sum(task[name] for task in of.values()) for name in ("sessions", "statements")}
    rows = [
        f"| {name} | {task['sessions']:.1f} | {task['statements']:.1f} |"
        for name, task in [*sorted(of.items()), ("in all", sums)]
    ]
    return "\n".join(["| manifest database, one run | sessions | statements |", "|---|---|---|", *rows])


def _by_hand(of: dict[str, Any]) -> str:
    whole = [run["whole"] for run in of["by_hand"]]
    names = [name for name in of["by_hand"][0] if name != "whole"]
    tasks = {name: statistics.median(run[name] for run in of["by_hand"]) for name in names}
    return (
        f"**One run by hand** of {of['records']:,} records, with nothing else to do (target: at most "
        f"{LONGEST_BY_HAND_S:.0f} s): {statistics.median(whole):.1f} s from the trigger to its end, {min(whole):.1f} "
        f"to {max(whole):.1f}. {_tasks(tasks)}"
    )


def _parsing(of: list[dict[str, float]]) -> str:
    rows = [
        f"| {files['files']:,.0f} | {files['seconds']:.1f} s | {files['reading']:.1f} s "
        f"| {files['reading'] / files['files'] * 1000:.1f} ms | {files['storing']:.1f} s |"
        for files in of
    ]
    title = (
        f"**The DAG processor reads all pipeline files again** (target: {FILES:,} files are read with less than "
        f"{LONGEST_PARSE_S:.0f} s of processor time):"
    )
    head = [
        "| files | the DAG file, whole | reading, processor time | of that, a file | comparing with what is stored |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([title, "", *head, *rows])


def _tasks(seconds: dict[str, float]) -> str:
    return "Its tasks: " + ", ".join(f"`{name}` {length:.1f} s" for name, length in seconds.items()) + "."
