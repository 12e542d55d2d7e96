"""The program psql as a reader: it has no code of Tidemark, and returns only text."""

import csv
import os
import subprocess

from sandbox.services.postgres import Postgres

NULL = "<null>"


def by_psql(postgres: Postgres, dsn: str, query: str) -> list[dict[str, str | None]]:
    """The rows of a query as psql copies them to its output, by column; None for null. Times are in UTC."""
    copied = f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER, NULL '{NULL}')"  # a table drawn by psql lacks U+10FFFF
    command = [str(postgres.programs / "psql"), "--no-psqlrc", f"--command={copied}"]
    environment = {**os.environ, **postgres.client_variables, "PGDATABASE": dsn.rpartition("/")[2], "PGTZ": "UTC"}
    done = subprocess.run(command, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    # As one line each would be cut at characters inside of texts, such as U+0085.
    header, *rows = csv.reader(_lines(done.stdout.decode()))
    return [dict(zip(header, map(_value, row), strict=True)) for row in rows]


def _lines(text: str) -> list[str]:
    return [f"{line}\n" for line in text.split("\n")][:-1]


def _value(text: str) -> str | None:
    return None if text == NULL else text
