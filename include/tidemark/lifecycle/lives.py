"""The lives of a partition: a log that was cut, or a topic made anew, has other records at the same offsets."""

from tidemark.database.client import ManifestDatabase
from tidemark.errors import TopicChanged


def refuse_outlived(pipeline: str, database: ManifestDatabase, manifest: int) -> None:
    """Raise ``TopicChanged`` when a manifest reaches above the end of the life it was planned on, as far as that is
    noticed or accepted: what Kafka has there belongs to another manifest, or will."""
    outlived = database.outlived(manifest)
    if not outlived:
        return
    one = outlived[0]
    place = {"topic": one["topic"], "partition": one["partition"]}
    accept = f"tidemark accept-truncation {pipeline} --topic {one['topic']} --partition {one['partition']} --why TEXT"
    raise TopicChanged(
        f"the log it was planned on ended at {one['life_end']}; Kafka has other records at its offsets above",
        next_step=f"nothing of this attempt is published, what was before stays; when that was meant: {accept}"
        if one["noticed"]
        else "what is published of it stays; when a sink lacks it, take that sink out of the pipeline file, end the "
        f"manifest with tidemark retry {pipeline}, and put the sink back",
        pipeline=pipeline,
        manifest=manifest,
        **place,
        offsets=f"[{one['start_offset']},{one['end_offset']})",
    )
