"""Finds out that rows were deleted from the manifest database, which only a superuser with triggers disabled can do."""

from collections.abc import Iterable

from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.errors import PlanRefused
from tidemark.model.manifest import listed
from tidemark.model.problem import Problem
from tidemark.model.verdict import NextStep, command

# Plans and `status` look only at this many of the newest runs and manifests, so that they do not become slower over the
# years. An audit looks at all.
NEWEST = 20


def gone_rows(database: ManifestDatabase, pipeline_name: str, newest: int | None = None) -> list[Problem]:
    """Return one problem for each table with deleted rows, and one for each manifest that lacks only publications."""
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
    """Raise ``PlanRefused`` if the database no longer has all that was planned: records would be read twice."""
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
