"""Finds rows of the ledger that somebody has deleted although nothing may: a superuser with triggers off."""

from collections.abc import Iterable

from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.errors import PlanRefused
from tidemark.model.manifest import listed
from tidemark.model.problem import Problem
from tidemark.model.verdict import NextStep, command

# Plans and `status` look at so many newest runs and manifests, so that they take the same time after years. An audit
# looks at all.
NEWEST = 20


def gone_rows(database: ManifestDatabase, pipeline_name: str, newest: int | None = None) -> list[Problem]:
    """One problem for each table that rows are gone from, and for each manifest that only its publications are."""
    by_table: dict[str, list[Row]] = {}
    for row in database.audits.gone_rows(pipeline_name, newest):
        by_table.setdefault(row["gone_from"], []).append(row)
    unpublished = [row["manifest_id"] for row in by_table.pop("publication", [])]
    problems = [
        Problem(
            None,
            f"rows are gone from the table {table} of the manifest database: {listed(_places(rows))}; Tidemark deletes "
            "none, so somebody did, with triggers off",
            f"tidemark db adopt {pipeline_name} --why TEXT, which reads back what the records in the targets say; what "
            "it refuses is mended by a copy of the database alone: restore one, and then adopt",
        )
        for table, rows in by_table.items()
    ]
    replays = [(manifest_id, command(NextStep.REPLAY, pipeline_name, manifest_id, "")) for manifest_id in unpublished]
    return problems + [Problem(manifest_id, "is done without a publication", replay) for manifest_id, replay in replays]


def refuse_gone_rows(database: ManifestDatabase, pipeline_name: str) -> None:
    """Raise ``PlanRefused`` for a ledger that does not say any more what was planned: records would be read twice."""
    for problem in gone_rows(database, pipeline_name, NEWEST):
        if problem.manifest_id is None:
            raise PlanRefused(problem.what, next_step=f"nothing was planned; {problem.next_step}")


def _places(rows: Iterable[Row]) -> list[str]:
    return [
        f"manifest {row['manifest_id']}"
        if row["manifest_id"] is not None
        else f"offsets [{'..' if row['start_offset'] is None else row['start_offset']}, {row['end_offset']}) of "
        f"{row['topic']}-{row['partition']}"
        for row in rows
    ]
