"""A small job on every executor of a session, for ``tidemark doctor``: in its own driver, or in one on the cluster."""

import json
import time
from functools import partial
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.spark.failures import cause_of
from tidemark.spark.jobs import count_executors
from tidemark.spark.masters import is_local
from tidemark.spark.probe import REST_S, Questions, look, versions

EXECUTORS_S = 30.0  # a worker with a free core starts an executor in 3 s
SETTLED_S = 2.0  # without a new executor for so long, all have registered
TASKS = 1000


def ask_executors(session: SparkSession, questions: Questions) -> dict[str, Any]:
    """Return values for JSON: ``driver`` (its ``probe.versions``), ``registered`` executors, and of the job ``answers``
    (those of ``probe.look``, with ``ahead`` in seconds), ``seconds``, and ``problem``, why it failed, or None.
    """
    asked: dict[str, Any] = {"driver": versions(), "registered": _registered(session)}
    if not asked["registered"]:
        return {**asked, "answers": [], "seconds": EXECUTORS_S, "problem": None}
    answers, seconds = _answers(session, questions, asked["registered"])
    problem = answers if isinstance(answers, str) else None
    # An executor may have started during the job, and answered.
    registered = asked["registered"] if problem else max(asked["registered"], count_executors(session))
    return {
        **asked, "registered": registered, "answers": [] if problem else answers, "seconds": seconds, "problem": problem
    }  # fmt: skip


def _registered(session: SparkSession) -> int:
    """Return the number of executors, once it has not changed for ``SETTLED_S``; 0 if none registers in time.

    The driver of a local master is its own executor.
    """
    if is_local(str(session.sparkContext.master)):
        return 1
    deadline, registered, changed_at = time.monotonic() + EXECUTORS_S, 0, time.monotonic()
    while time.monotonic() < deadline:
        current = count_executors(session)
        if current != registered:
            registered, changed_at = current, time.monotonic()
        elif registered and time.monotonic() - changed_at > SETTLED_S:
            break
        time.sleep(0.2)
    return registered


def _answers(session: SparkSession, questions: Questions, registered: int) -> tuple[list[dict[str, Any]] | str, float]:
    """Return one answer of each executor, or the reason why the job failed; and the seconds it took."""
    context = session.sparkContext
    tasks = min(2 * max(context.defaultParallelism, registered), TASKS)
    started = time.monotonic()
    try:
        lines = context.parallelize(range(tasks), tasks).mapPartitions(partial(look, questions)).collect()
    except (PySparkException, Py4JError, ConnectionError) as error:
        return cause_of(error), time.monotonic() - started
    now = time.time()
    seconds = time.monotonic() - started
    answers = {(answer["host"], answer["folder"]): answer for answer in map(json.loads, lines)}
    for answer in answers.values():
        # A time of an executor between the start and the end of the job shows no difference of clocks.
        answer["ahead"] = max(answer["now"] - now, 0) + min(answer["now"] - (now - seconds - REST_S), 0)
    return list(answers.values()), seconds
