"""The audit of an Iceberg table: every row is of a published manifest, and every published row is there."""

from collections.abc import Iterator

from tidemark.model.problem import Problem
from tidemark.sinks.base import Contents, Expected, Ledger
from tidemark.sinks.capabilities import MayBeRolledBack
from tidemark.sinks.iceberg.files import manifests_in
from tidemark.sinks.iceberg.table import IcebergTarget


def differences_of_iceberg(
    expected: Expected,
    contents: Contents,
    output: MayBeRolledBack,
    ledger: Ledger,
    target: IcebergTarget,
    *,
    deep: bool,
) -> Iterator[Problem]:
    """What the table holds and should not, or lacks; ``deep`` reads every row, one manifest in memory at a time."""
    unvouched = output.unvouched(expected)
    if deep:
        shown = ledger.evidence()
        with target.reading() as reading:
            present = manifests_in(reading)
            yield from _strays(expected, ledger, present - shown.keys())
            yield from target.rows.differences(reading, expected, ledger)
        contents["rows"] |= present - unvouched.keys()
    for manifest_id in unvouched:
        what = (
            f"{ledger.target} has rows of manifest {manifest_id}, which this database does not know: another program "
        )
        adopt = f"tidemark db adopt {ledger.pipeline_name} --why TEXT"
        yield Problem(None, f"{what}rolled it back", adopt)


def _strays(expected: Expected, ledger: Ledger, stray: set[int]) -> Iterator[Problem]:
    for manifest_id in sorted(stray - expected.not_own(stray)):
        yield Problem(
            manifest_id,
            f"{ledger.target} has rows of it, and does not say so: they were put there by hand, or came back with a "
            "rollback",
            f"tidemark replay {ledger.pipeline_name} --manifest {manifest_id}",
        )
