"""Creates the tables, never in Airflow's own database; refuses tables of another version or another ``schema.sql``."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from tidemark.database.connection import Connection, connect, describe, translated
from tidemark.errors import ConfigurationError

VERSION = 1
NEXT_STEP = "use the Tidemark version that created them, or set TIDEMARK_DB to another database"


def migrate(dsn: str) -> bool:
    """Create the tables; False when they exist. Safe to repeat, also by several processes at once.

    Raises ``ConfigurationError`` for tables of another version or schema, and for Airflow's own database.
    """
    with connect(dsn) as connection, translated(database=describe(dsn)), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(1414089812, 0)")
        row = connection.execute(
            "SELECT to_regclass('tidemark.database') AS ours, to_regclass('public.dag_run') AS airflow"
        ).fetchone()
        assert row is not None
        if row["airflow"]:
            raise ConfigurationError(
                "this is Airflow's own metadata database",
                next_step="create a database for Tidemark (the same server will do) and name it in TIDEMARK_DB",
                database=describe(dsn),
            )
        if row["ours"]:
            _check_version(connection, dsn)
            return False
        connection.execute(_schema())
        connection.execute("INSERT INTO tidemark.database (version, schema) VALUES (%s, %s)", [VERSION, _digest()])
        return True


def connect_to_tables(dsn: str) -> Connection:
    """As ``connect``; ``ConfigurationError`` for a database without Tidemark's tables or with others."""
    connection = connect(dsn)
    try:
        with translated(database=describe(dsn)):
            _check_version(connection, dsn)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(connection: Connection, dsn: str) -> None:
    # As JSON, because older tables lack the column "schema".
    row = connection.execute("SELECT to_jsonb(ours) AS tables FROM tidemark.database AS ours").fetchone()
    wrong = what_is_wrong(row["tables"] if row else {})
    if wrong is not None:
        raise ConfigurationError(wrong, next_step=NEXT_STEP, database=describe(dsn))


def what_is_wrong(tables: Mapping[str, Any]) -> str | None:
    """Why tables cannot be used, by the row of their table ``database``; None when they can."""
    version, schema = tables.get("version", "unknown"), tables.get("schema", "unknown")
    if version != VERSION:
        return f"the tables are of version {version}, this Tidemark needs {VERSION}"
    if schema != _digest():
        return f"the tables are of another state of Tidemark (schema {schema}), this one needs {_digest()}"
    return None


@cache
def _schema() -> bytes:
    return files("tidemark.database").joinpath("schema.sql").read_bytes()


def _digest() -> str:
    return sha256(_schema()).hexdigest()[:12]
