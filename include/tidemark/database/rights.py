"""Names the GRANT statements for the rights that a PostgreSQL user lacks.

An error of PostgreSQL names only one table or schema, in the server's language; the catalog shows all missing rights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from tidemark.errors import AccessDenied, TidemarkError
from tidemark.text import named_queries

FEW = 3  # at most so many tables of a schema are named one by one

QUERIES = named_queries("tidemark.database", "rights.sql")


@dataclass(frozen=True)
class Needs:
    """The rights that are needed: by schema, and by table as (schema, table); an empty table stands for all tables."""

    schemas: dict[str, Sequence[str]] = field(default_factory=dict)
    tables: dict[tuple[str, str], Sequence[str]] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str | None, str]]:
        of_schemas = [(schema, None, right) for schema, rights in self.schemas.items() for right in rights]
        return of_schemas + [(*table, right) for table, rights in self.tables.items() for right in rights]


OF_THE_LEDGER = Needs({"tidemark": ("USAGE",)}, {("tidemark", ""): ("SELECT", "INSERT", "UPDATE", "DELETE")})


@dataclass(frozen=True)
class Rights:
    """The rights that the statements of a session need. ``then`` follows the GRANT statements in the next step."""

    session: psycopg.Connection[dict[str, Any]]
    needs: Needs
    then: str

    def with_missing_grants(self, error: TidemarkError) -> TidemarkError:
        """Return an ``AccessDenied`` whose next step lists the missing GRANT statements. Return the error unchanged if
        it is no ``AccessDenied``, or if no GRANT is missing."""
        grants = missing_grants(self.session, self.needs) if isinstance(error, AccessDenied) else []
        if not grants:  # for example, a policy refuses the rows
            return error
        next_step = f"have their owner run in that database: {'; '.join(grants)}{self.then}"
        return AccessDenied(error.what, next_step=next_step, **error.context)


def missing_grants(session: psycopg.Connection[dict[str, Any]], needs: Needs) -> list[str]:
    """Return the GRANT statements for the rights that the user lacks; empty if the server does not answer. Uses a new
    connection, because the transaction of the session has failed."""
    schemas, tables, rights = ([row[column] for row in needs.rows()] for column in range(3))
    try:
        dsn = make_conninfo(session.info.dsn, password=session.info.password, connect_timeout="5")
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as asked:
            rows = asked.execute(
                QUERIES["lacking"], {"schemas": schemas, "tables": tables, "rights": rights}
            ).fetchall()
    except psycopg.Error:
        return []
    lines = dict[str, None]()
    for row in rows:
        alike = [other for other in rows if (other["kind"], other["schema"]) == (row["kind"], row["schema"])]
        granted = ", ".join(sorted({right for other in alike for right in other["rights"].split(", ")}))
        on = f"ALL {row['kind']}S IN SCHEMA {row['schema']}"
        if len(alike) <= FEW or row["place"] < 3:
            granted, on = row["rights"], f"{row['kind']} {row['name']}"
        lines[f"GRANT {granted} ON {on} TO {row['grantee']}"] = None
    return list(lines)
