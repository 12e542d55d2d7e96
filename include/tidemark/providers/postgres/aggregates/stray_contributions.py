"""Reports contributions of manifests that the sink has not published."""

from collections.abc import Collection

from tidemark.sinks.base import Expected, Ledger


def what_of_strays(
    expected: Expected, ledger: Ledger, strays: Collection[int], by_hand: str
) -> dict[int, tuple[str, str]]:
    """Return, by manifest, (what is wrong, the next step).

    The step is ``by_hand`` for a manifest that the database does not know, because no attempt can have left its
    contributions. Contributions of a known manifest are part of the totals; for example, a sink that is now retired put
    them there.
    """
    unknown = expected.unknown(strays)
    replaced = (
        "an earlier sink of this table may have left them there, so do not delete them; they are replaced by: tidemark "
        f"fill {ledger.pipeline_name} {ledger.name} --why TEXT; when the manifest is not done, by: tidemark retry "
        f"{ledger.pipeline_name}"
    )
    return {
        manifest_id: ("which has contributed nothing", by_hand)
        if manifest_id in unknown
        else (f"which {ledger.name} has not published", replaced)
        for manifest_id in sorted(strays)
    }
