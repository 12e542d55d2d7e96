"""Makes the record of an attempt, and reads what a target shows of a manifest: that record and the objects it names.

The record is made here and not by the sink, because every kind of sink must store the same content.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidemark.model.digest import Digest
from tidemark.model.manifest import Manifest
from tidemark.model.offsets import Range, range_content, range_from
from tidemark.model.receipt import MALFORMED, Receipt
from tidemark.model.verdict import Shown
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink


def record_of(
    sink: Sink, receipt: Receipt, ranges: Sequence[Range], database_id: str, gone: Collection[str] = ()
) -> dict[str, Any]:
    """Return all that another database needs to adopt the output of an attempt, as values for JSON.

    ``gone`` are the paths of objects that were given up; the record lists them apart from the others.
    """
    objects = [
        {name: value for name, value in asdict(object_).items() if name not in ("sink", "staged")}
        for object_ in receipt.objects_of(sink.name)
    ]
    return {
        "pipeline": sink.pipeline_name,
        "manifest": receipt.manifest_id,
        "attempt": receipt.attempt,
        "database": database_id,
        "ranges": [range_content(range_) for range_ in ranges],
        "counts": asdict(receipt.counts(sink.name, ranges)),
        "digest": receipt.digest(sink.name),
        "partitions": [asdict(partition) for partition in receipt.partitions],
        "hours": receipt.hours,
        "reasons": [asdict(reason) for reason in receipt.reasons],
        "unknown_fields": [asdict(unknown) for unknown in receipt.unknown_fields],
        "expectations": [asdict(count) for count in receipt.expectations],
        "schemas": receipt.schemas,
        "objects": [object_ for object_ in objects if object_["path"] not in gone],
        "gone": [object_ for object_ in objects if object_["path"] in gone],
    }


def shown(
    sink: Sink,
    manifest: Manifest,
    evidence: int | None,
    receipts: Mapping[int, Receipt],
    accepted: frozenset[str] = frozenset(),
    *,
    objects: bool = True,
) -> Shown:
    """Return what the target shows of a manifest. ``evidence`` is the highest attempt with a record there.

    Objects whose paths are ``accepted`` may be missing. Without ``objects``, a published attempt with its record counts
    as whole, and its objects are not looked at.
    """
    published = manifest.published(sink.name)
    digest = None if evidence is None else _digest_of_record(sink, manifest, evidence)
    if published is not None and evidence == published.attempt and not objects:
        return Shown(evidence, digest, whole=True, published_whole=True)
    newest_receipt = receipts.get(evidence or 0)
    whole = newest_receipt is not None and sink.is_whole(newest_receipt)
    if published is None:
        return Shown(evidence, digest, whole=whole)
    receipt = receipts.get(published.attempt)
    published_whole = receipt is not None and sink.is_whole(receipt, accepted)
    return Shown(evidence, digest, whole=whole, published_whole=published_whole)


def _digest_of_record(sink: Sink, manifest: Manifest, attempt: int) -> str | None:
    """Return the digest in a record; None if it cannot be read, or is not that of the objects that the record names.

    Also None if the attempt is not published and the record covers other ranges than the manifest: some of these were
    given up since.
    """
    published = manifest.published(sink.name)
    content = sink.ledger.record(RecordName(sink.pipeline_name, manifest.id, attempt)) or {}
    try:
        ranges = tuple(range_from(range_) for range_ in content["ranges"])
        objects = (*content["objects"], *content["gone"])
        digest = sum((Digest.parse(part["digest"]) for part in objects), Digest.zero())
        covers = ranges == manifest.ranges or (published is not None and published.attempt == attempt)
        return str(digest) if covers and str(digest) == content["digest"] else None
    except MALFORMED:
        return None
