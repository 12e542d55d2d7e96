"""Contributions of manifests that the sink has not published."""

from collections.abc import Collection

from tidemark.database.client import ManifestDatabase
from tidemark.sinks.base import Sink


def what_of_strays(
    database: ManifestDatabase, sink: Sink, strays: Collection[int], by_hand: str
) -> dict[int, tuple[str, str]]:
    """What is wrong with them and the next step, by manifest; ``by_hand`` where no attempt of this database can have
    left them there.

    Those of a manifest that the database knows are part of the totals, such as what a sink that is retired now has put
    into the same table.
    """
    unknown = set(database.manifests.unknown(sorted(strays)))
    replaced = (
        "an earlier sink of this table may have left them there, so do not delete them; they are replaced by: tidemark "
        f"fill {sink.pipeline_name} {sink.name} --why TEXT; when the manifest is not done, by: tidemark retry "
        f"{sink.pipeline_name}"
    )
    return {
        manifest_id: ("which has contributed nothing", by_hand)
        if manifest_id in unknown
        else (f"which {sink.name} has not published", replaced)
        for manifest_id in sorted(strays)
    }
