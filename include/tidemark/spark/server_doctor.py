"""The checks of a Spark Connect server for ``tidemark doctor``: a small job compares its Python with this one."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from tidemark.connections.lookup import Lookup, connections_from, put_in_memory
from tidemark.errors import TidemarkError
from tidemark.model.findings import Finding, failed, ok, warning
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.registry import connectors
from tidemark.sources.settings import Connector
from tidemark.spark.connected import ERRORS, RETRIES, send_package
from tidemark.spark.executor_answers import findings_of, nonce_files, questions_of
from tidemark.spark.failures import cause_of
from tidemark.spark.probe import Questions, look, versions
from tidemark.spark.remote import Remote

NAME = "spark server"
TASKS = 8
NO_SOURCE = "DATA_SOURCE_NOT_FOUND"


def findings(
    remote: Remote, home: Path, pipelines: Sequence[Pipeline], addresses: Sequence[str], lookup: Lookup
) -> Iterator[Finding]:
    """Yield findings: whether the server answers, has the connectors of the sources, and a Python in which our tasks
    run.

    Its tasks get the connections of ``lookup`` as those of a manifest do.
    """
    remote.check()
    ours = version("pyspark")
    session = SparkSession(remote.url(uuid4()))
    try:
        session.client.set_retry_policies([RETRIES])
        if session.version != ours:
            message = f"{remote.address} is Spark {session.version}, this machine has PySpark {ours}"
            yield warning(NAME, message, "start it with the same version: tidemark spark serve")
        else:
            yield ok(NAME, f"{remote.address} answers, Spark {session.version}")
        for connector in connectors():
            if not _has(session, connector):
                yield failed(
                    NAME,
                    f"it has no {connector.name}",
                    "start it with: tidemark spark serve, which takes TIDEMARK_SPARK_JARS; or with --packages "
                    f"{connector.group}:{connector.jars[0]}:{ours}",
                )
        send_package(session, home)
        with nonce_files(pipelines) as nonces, put_in_memory(_connections(pipelines, lookup)) as file:
            questions = questions_of(pipelines, addresses, nonces)
            yield from _python(session, questions, file if remote.is_here else None)
    except ERRORS as error:
        yield failed(NAME, f"a small job failed: {cause_of(error)}", "the log of the server says more")
    finally:
        session.stop()


def _has(session: SparkSession, connector: Connector) -> bool:
    try:
        session.read.format(connector.format).load().schema  # noqa: B018 - asks the server
    except PySparkException as error:
        return error.getCondition() != NO_SOURCE  # another error: the connector exists, and misses options
    return True


def _connections(pipelines: Sequence[Pipeline], lookup: Lookup) -> dict[str, Mapping[str, Any]]:
    """Return the connections that can be read. The check of a source or sink reports a connection that cannot be."""
    connections: dict[str, Mapping[str, Any]] = {}
    for conn_id in sorted({conn_id for pipeline in pipelines for conn_id in pipeline.connections()}):
        with suppress(TidemarkError):
            if (entry := lookup(conn_id)) is not None:
                connections[conn_id] = entry
    return connections


def _python(session: SparkSession, questions: Questions, connections: str | None) -> Iterator[Finding]:
    rows = (
        session.range(0, TASKS, 1, TASKS).mapInArrow(partial(_look, questions, connections), "answer string").collect()
    )
    answers = {(answer["host"], answer["folder"]): answer for answer in (json.loads(row.answer) for row in rows)}
    here = versions()
    for answer in answers.values():
        yield from findings_of({**answer, "ahead": 0.0}, here)
    yield ok(NAME, f"its Python answered, on {len(answers)} of its executors")


def _look(questions: Questions, connections: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    with connections_from(connections):
        yield pa.RecordBatch.from_pydict({"answer": list(look(questions, ()))})
