"""Creates the tables and upgrades them, but never in Airflow's own database. Refuses tables of an unreleased or newer
version, and tables with archived manifests.

``schema.sql`` makes version 1, ``migrations/0002.sql`` makes version 2 of it, and so on; a new database goes through
the same files as an old one. Each database stores the digest of the files that made it, comments included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from tidemark.database.rights import OF_THE_LEDGER, Rights
from tidemark.database.session import Session, connect, describe, translated
from tidemark.errors import ConfigurationError
from tidemark.failpoints import failpoint
from tidemark.text import named_queries

FOLDER: Final = files("tidemark.database")
QUERIES: Final = named_queries("tidemark.database", "migrate.sql")
ANY_TEXT: Final = ("UTF8", "SQL_ASCII")  # encodings of databases that store all characters
LAST_OF_0_3: Final = 4  # the version of the tables of release 0.3


@dataclass(frozen=True)
class Migration:
    """A file of SQL that makes ``version`` from the version before; ``digest`` is of all files up to this one."""

    version: int
    name: str
    sql: bytes
    digest: str


def migrations(folder: Traversable = FOLDER) -> list[Migration]:
    """Return the files of a folder in their order; at least ``schema.sql``."""
    versions: list[Migration] = []
    text = sha256()
    name = "schema.sql"
    while (file := folder.joinpath(*name.split("/"))).is_file():
        sql = file.read_bytes()
        text.update(sql)
        versions.append(Migration(len(versions) + 1, name, sql, text.hexdigest()[:12]))
        name = f"migrations/{len(versions) + 1:04}.sql"
    return versions


def migrate(dsn: str, folder: Traversable = FOLDER, *, dry_run: bool = False) -> tuple[int, ...]:
    """Create or upgrade the tables; return the versions that were made, none if there was nothing to do.

    Each version is one transaction. Safe to repeat, also by several processes at once and after one was killed. Raises
    ``ConfigurationError`` for tables of an unreleased or newer version, for tables with archived manifests, and for
    Airflow's own database; then nothing is changed.
    """
    steps = migrations(folder)
    with connect(dsn) as session, translated(database=describe(dsn)):
        if dry_run:
            version = _version(session, dsn, steps)
            return tuple(step.version for step in steps if step.version > version)
        return tuple(step.version for step in steps if _made(session, dsn, step, steps))


def _made(session: Session, dsn: str, step: Migration, steps: Sequence[Migration]) -> bool:
    with translated(database=describe(dsn), migration=step.name), session.transaction():
        session.execute(QUERIES["lock"])
        version = _version(session, dsn, steps)
        if version >= step.version:
            return False
        session.execute(QUERIES["actor"])
        session.execute(step.sql)
        if version == 0:
            session.execute(QUERIES["created"], {"schema": step.digest})
        else:
            session.execute(QUERIES["upgraded"], {"version": step.version, "schema": step.digest})
        failpoint("migrate.before_commit")
    return True


def _version(session: Session, dsn: str, steps: Sequence[Migration]) -> int:
    """Return the version of the tables; 0 if there are none."""
    row = session.execute(QUERIES["databases"]).fetchone()
    assert row is not None
    if row["airflow"]:
        raise ConfigurationError(
            "this is Airflow's own metadata database",
            next_step="create a database for Tidemark (the same server will do) and name it in TIDEMARK_DB",
            database=describe(dsn),
        )
    if not row["ours"] and row["encoding"] not in ANY_TEXT:
        raise ConfigurationError(
            f"the database has the encoding {row['encoding']}, which cannot store every character; Tidemark needs UTF8",
            next_step="create one for Tidemark with: CREATE DATABASE NAME ENCODING 'UTF8' TEMPLATE template0",
            database=describe(dsn),
        )
    if not row["ours"]:
        return 0
    version = _release(_stored(session), steps, database=describe(dsn))
    if version <= LAST_OF_0_3:
        _refuse_archived(session, database=describe(dsn))
        _refuse_sinks(session, database=describe(dsn))
    return version


def _refuse_archived(session: Session, **context: object) -> None:
    """Raise ``ConfigurationError`` for tables of a release up to 0.3 with archived manifests."""
    archived = {row["pipeline"]: row["manifests"] for row in session.execute(QUERIES["archived"]).fetchall()}
    if archived:
        raise ConfigurationError(
            "the database has archived manifests, which this version of Tidemark cannot read: "
            + ", ".join(f"{number:,} of pipeline {name}" for name, number in archived.items()),
            next_step="nothing was changed: go on with Tidemark 0.3; or let it finish what is planned, and begin again "
            "with an empty database in TIDEMARK_DB and pipelines of other names that write to new targets",
            **context,
        )


def _refuse_sinks(session: Session, **context: object) -> None:
    """Raise ``ConfigurationError`` for tables of a release up to 0.3 with sinks whose evidence is not carried over."""
    rows = session.execute(QUERIES["not_carried_over"]).fetchall()
    if rows:
        named = ", ".join(f"{row['name']} of pipeline {row['pipeline']} ({row['target']})" for row in rows)
        pipeline_name, sink = rows[0]["pipeline"], rows[0]["name"]
        raise ConfigurationError(
            "releases up to 0.3 kept their evidence in these targets in another way, and it is not carried over: "
            f"{named}",
            next_step="nothing was changed: go on with Tidemark 0.3; or let it finish what is planned, take each of "
            f"these sinks out of its file, with 0.3: tidemark retire sink {pipeline_name} {sink} --why TEXT; then "
            "upgrade, and write a sink of another name with a new table, which this fills: "
            f"tidemark fill {pipeline_name} NAME --why TEXT",
            **context,
        )


def connect_to_tables(dsn: str) -> Session:
    """Connect as ``connect`` does; raises ``ConfigurationError`` for a database without the tables of this version."""
    session = connect(dsn)
    try:
        with translated(Rights(session, OF_THE_LEDGER, "; then try again"), database=describe(dsn)):
            check(_stored(session), database=describe(dsn))
    except BaseException:
        session.close()
        raise
    return session


def _stored(session: Session) -> Mapping[str, Any]:
    """Return the row of the table ``database``; empty without that table."""
    row = session.execute(QUERIES["tables"]).fetchone()
    return row["tables"] if row else {}


def check(tables: Mapping[str, Any], **context: object) -> None:
    """Raise ``ConfigurationError`` for tables that this Tidemark cannot use; ``tables`` is the row of their table
    ``database``."""
    steps = migrations()
    version = _release(tables, steps, **context)
    if version < len(steps):
        raise ConfigurationError(
            f"the tables are of version {version}, this Tidemark needs {len(steps)}",
            next_step="upgrade them with: tidemark db migrate",
            **context,
        )


def _release(tables: Mapping[str, Any], steps: Sequence[Migration], **context: object) -> int:
    """Return the version of tables that this release or an older one has made; raises ``ConfigurationError`` for
    others."""
    version, schema = tables.get("version", "unknown"), tables.get("schema", "unknown")
    if isinstance(version, int) and version > len(steps):
        raise ConfigurationError(
            f"the tables are of version {version}, this Tidemark needs {len(steps)}",
            next_step="use the Tidemark version that upgraded them or a newer one, or set TIDEMARK_DB to another "
            "database; there is no way back to older tables",
            **context,
        )
    for step in steps:
        if (version, schema) == (step.version, step.digest):
            return step.version
    raise ConfigurationError(
        f"the tables are of a state of Tidemark that was never released (version {version}, schema {schema})",
        next_step="use the Tidemark version that created them, or set TIDEMARK_DB to another database",
        **context,
    )
