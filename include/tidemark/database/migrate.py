"""Creates the tables, never in Airflow's own database; refuses tables of another version."""

from importlib.resources import files

from tidemark.database.connection import Connection, connect, describe, translated
from tidemark.errors import ConfigurationError

VERSION = 1


def migrate(dsn: str) -> bool:
    """Create the tables; False when they exist. Safe to repeat, also by several processes at once.

    Raises ``ConfigurationError`` for tables of another version and for Airflow's own database.
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
        connection.execute(files("tidemark.database").joinpath("schema.sql").read_bytes())
        connection.execute("INSERT INTO tidemark.database (version) VALUES (%s)", [VERSION])
        return True


def connect_to_tables(dsn: str) -> Connection:
    """As ``connect``; ``ConfigurationError`` for a database without Tidemark's tables or with another version."""
    connection = connect(dsn)
    try:
        with translated(database=describe(dsn)):
            _check_version(connection, dsn)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(connection: Connection, dsn: str) -> None:
    row = connection.execute("SELECT version FROM tidemark.database").fetchone()
    if row is None or row["version"] != VERSION:
        raise ConfigurationError(
            f"the tables are of version {row['version'] if row else 'unknown'}, this Tidemark needs {VERSION}",
            next_step="use the Tidemark version that created them, or another database",
            database=describe(dsn),
        )
