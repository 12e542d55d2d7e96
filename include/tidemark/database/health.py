"""Reads state and settings of the manifest database, for ``tidemark doctor``; changes nothing."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.database.migrate import QUERIES as OF_TABLES
from tidemark.database.migrate import check
from tidemark.database.session import connect, describe, translated
from tidemark.database.usable import QUERIES as OF_A_SESSION
from tidemark.database.usable import UnusableServer, without_standby
from tidemark.errors import ConfigurationError
from tidemark.text import named_queries

SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
QUERIES = named_queries("tidemark.database", "health.sql")


@dataclass(frozen=True)
class Health:
    """State and settings of the manifest database; ``version`` and ``id`` are None without our tables.

    ``wrong``: why existing tables cannot be used. ``standbys``: the number of standby servers that receive changes now.
    ``never_commits``: why a COMMIT would wait for ever, if it would. ``clock_ahead``: the seconds that the server's
    clock is ahead of ours.
    """

    place: str
    server: str
    version: int | None
    id: str | None
    wrong: ConfigurationError | None
    is_airflows: bool
    read_only: bool
    settings: Mapping[str, str]
    standbys: int
    never_commits: UnusableServer | None
    clock_ahead: float


def health(dsn: str) -> Health:
    """Return the health of the database of a DSN; raises ``Unavailable`` if it does not answer within 5 s."""
    with connect(dsn, to_look=True) as session, translated(database=describe(dsn)):
        before = time.time()
        row = session.execute(QUERIES["health"]).fetchone()
        after = time.time()
        server = session.execute(OF_A_SESSION["server"]).fetchone()
        standbys = session.execute(OF_A_SESSION["standbys"]).fetchone()
        assert row is not None
        assert server is not None
        assert standbys is not None
        stored = session.execute(OF_TABLES["tables"]).fetchone() if row["ours"] else None
    ours = stored["tables"] if stored else None
    return Health(
        place=describe(dsn),
        server=row["server"],
        version=ours["version"] if ours else None,
        id=ours["id"] if ours else None,
        wrong=_wrong(ours) if ours else None,
        is_airflows=row["airflow"],
        read_only=server["is_standby"] or server["is_read_only"],
        settings={name: row[name] for name in SETTINGS},
        standbys=standbys["standbys"],
        never_commits=without_standby(server["awaited"], standbys["confirming"]),
        clock_ahead=row["now"] - (before + after) / 2,
    )


def _wrong(tables: Mapping[str, Any]) -> ConfigurationError | None:
    try:
        check(tables)
    except ConfigurationError as error:
        return error
    return None
