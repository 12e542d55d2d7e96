"""The audit of a Delta table: every row is of a published manifest, and every published row is there."""

from collections.abc import Iterator

from tidemark.model.problem import Problem
from tidemark.sinks.base import Contents, Expected, Ledger
from tidemark.sinks.capabilities import MayBeRolledBack
from tidemark.sinks.delta.table import DeltaTarget


def differences_of_delta(
    expected: Expected,
    contents: Contents,
    output: MayBeRolledBack,
    ledger: Ledger,
    target: DeltaTarget,
    *,
    deep: bool,
) -> Iterator[Problem]:
    """What the table holds and should not, or lacks. Which manifests have rows a table of all rows says in its log; of
    one with a key it is read, when the audit is ``deep``."""
    unvouched = output.unvouched(expected)
    table = target.loaded()
    if deep or not target.rows.keyed:
        present = target.rows.manifests(table)
        contents["rows"] |= present - unvouched.keys()
        yield from _strays(expected, ledger, present - ledger.evidence().keys() - unvouched.keys())
    yield from target.rows.differences(table, expected, ledger, deep=deep)
    for manifest_id in unvouched:
        what = f"{ledger.target} has rows of manifest {manifest_id}, which this database does not know, and no evidence"
        yield Problem(None, what, f"tidemark db adopt {ledger.pipeline_name} --why TEXT")


def _strays(expected: Expected, ledger: Ledger, stray: set[int]) -> Iterator[Problem]:
    for manifest_id in sorted(stray - expected.not_own(stray)):
        yield Problem(
            manifest_id,
            f"{ledger.target} has rows of it, and does not say so: they were put there by hand",
            f"tidemark replay {ledger.pipeline_name} --manifest {manifest_id}",
        )
