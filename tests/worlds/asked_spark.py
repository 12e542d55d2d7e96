"""Spark with the runtime of a table format, in its own process. It starts once and answers many questions."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from sandbox.bootstrap.checkout import STATE
from sandbox.bootstrap.jars import fetch_for_tests

ANSWER = "answer "  # begins the lines that are ours
PROGRAM = f"""
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.stdin.readline()).items():
    builder = builder.config(name, value)
first = builder.getOrCreate()
for line in sys.stdin:
    conf, statements = json.loads(line)
    session = first.newSession()  # with catalogs of its own, so it reads all tables anew
    for name, value in conf.items():
        session.conf.set(name, value)
    rows = [[list(row) for row in session.sql(statement).collect()] for statement in statements]
    print({ANSWER!r} + json.dumps(rows, default=str), flush=True)
first.stop()
"""


class AskedSpark:
    """A process with Spark. ``jars`` is the set of jars with the runtime; ``conf`` are properties for all questions."""

    def __init__(self, jars: str, conf: Mapping[str, str]) -> None:
        self._folder = TemporaryDirectory(prefix="asked-spark-")  # Spark leaves a folder where it works
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(self._folder.name),
            text=True,
        )
        self._send(
            {
                "spark.driver.extraClassPath": f"{fetch_for_tests(jars, STATE)}/*",
                "spark.driver.host": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "2",
                **conf,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()
        assert self._process.returncode == 0

    def rows(self, statements: list[str], conf: Mapping[str, str]) -> list[list[list[Any]]]:
        """The rows that it answers to each SQL statement, in a session with these properties."""
        self._send([conf, statements])
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answers: list[list[list[Any]]] = json.loads(line.removeprefix(ANSWER))
                return answers
        raise AssertionError(f"Spark has ended at one of {statements}")

    def _send(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(what)}\n")
        self._process.stdin.flush()
