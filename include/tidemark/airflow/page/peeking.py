"""Peeks at records for the page in a process of its own, which is ended when it takes too long.

So no request waits without end, and a large record takes no memory of the web server. The process has the connections
of the pipeline in its environment, as a task has. It runs no code of the pipeline: Airflow's web server has secrets
that those who write pipelines must not read.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from threading import BoundedSemaphore
from typing import Any

from tidemark import errors
from tidemark.connections.lookup import Lookup, variable_of
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, TidemarkError, Unavailable, WorkFailed
from tidemark.model.json_values import json_value
from tidemark.operations.peek import RecordSelection, peek
from tidemark.pipeline.deployed import pipeline_named
from tidemark.pipeline.settings import Pipeline
from tidemark.views.peeked import peeked_view

LIMIT_S = 20.0  # a broker that is down is known after 10
AT_ONCE = 2  # of all users of a web server
MOST_RECORDS = 100
MOST_ROWS = 500  # a transform may make many rows of a record
CHARACTERS = 200  # of a value

_free = BoundedSemaphore(AT_ONCE)


def peeked(pipeline: Pipeline, selection: RecordSelection, lookup: Lookup) -> dict[str, Any]:
    """Return the parts of a ``PeekedView``. Raises as ``peek``, and ``Unavailable`` if it takes too long."""
    if pipeline.code:
        raise ConfigurationError(
            "the page runs no code of a pipeline, and this one has some",
            next_step=f"tidemark peek {pipeline.name}",
            pipeline=pipeline.name,
        )
    if not _free.acquire(blocking=False):
        raise Unavailable(f"{AT_ONCE} others look at records now", next_step="try again in some seconds")
    try:
        return _asked(pipeline, selection, lookup)
    finally:
        _free.release()


def _asked(pipeline: Pipeline, selection: RecordSelection, lookup: Lookup) -> dict[str, Any]:
    entries = {conn_id: lookup(conn_id) for conn_id in pipeline.connections()}
    connections = {variable_of(conn_id): json.dumps(entry) for conn_id, entry in entries.items() if entry is not None}
    command = [sys.executable, "-m", __name__, pipeline.name, json.dumps(vars(selection))]
    try:
        # What a library may write to standard error could be a value.
        done = subprocess.run(
            command, env={**os.environ, **connections}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"the records were not read within {LIMIT_S:g} s",
            next_step=f"ask for fewer, or for those of one partition; without a limit: tidemark peek {pipeline.name}",
            pipeline=pipeline.name,
        ) from None
    if done.returncode:
        raise WorkFailed(
            f"the process that reads the records has ended with status {done.returncode}",
            next_step=f"tidemark peek {pipeline.name}",
            pipeline=pipeline.name,
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["what"], next_step=answer["next_step"], **answer["context"])
    return answer


def main(name: str, selection: str) -> None:
    try:
        print(json.dumps(_peeked(name, RecordSelection(**json.loads(selection))), default=json_value))
    except TidemarkError as error:
        kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        context = {name: str(value) for name, value in error.context.items()}
        print(json.dumps({"error": kind, "what": error.what, "next_step": error.next_step, "context": context}))


def _peeked(name: str, selection: RecordSelection) -> Mapping[str, Any]:
    pipeline = pipeline_named(Environment.from_variables().pipelines, name)
    view = peeked_view(peek(pipeline, selection), CHARACTERS)
    return {**vars(view), "rows": view.rows[:MOST_ROWS], "taken_away": view.taken_away[:MOST_ROWS]}


if __name__ == "__main__":
    main(*sys.argv[1:])
