"""Lists what one target must hold according to the manifest database, for sinks that compare it with the target."""

from collections.abc import Iterable, Sequence
from functools import partial

from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.order import TransformOrder
from tidemark.model.receipt import PublishedObject, Receipt
from tidemark.paths import RecordName
from tidemark.sinks.base import MarkSession, Sink, Work


class ExpectedByDatabase:
    """``tidemark.sinks.base.Expected`` for one sink; ``manifests`` are those that are compared."""

    def __init__(self, database: ManifestDatabase, sink: Sink, manifests: Sequence[Manifest] = ()) -> None:
        self.manifests = manifests
        self._database = database
        self._pipeline_name = sink.pipeline_name
        self._sink_name = sink.name

    def published(self) -> list[tuple[Manifest, Publication]]:
        return [(manifest, row) for manifest in self.manifests if (row := manifest.published(self._sink_name))]

    def receipt(self, manifest_id: int, attempt: int) -> Receipt | None:
        return self._database.attempts.receipt(manifest_id, attempt)

    def given_up(self, manifest_id: int, attempt: int) -> frozenset[str]:
        return self._database.decisions.accepted_damage(manifest_id, self._sink_name, attempt)

    def unknown(self, manifest_ids: Iterable[int]) -> set[int]:
        return set(self._database.manifests.unknown(sorted(manifest_ids)))

    def own(self) -> dict[int, Manifest]:
        manifests = self._database.manifests.find(self._pipeline_name)
        return {manifest.id: manifest for manifest in manifests}

    def not_own(self, manifest_ids: Iterable[int]) -> set[int]:
        wanted = set(manifest_ids)
        known = self._database.manifests.find(self._pipeline_name, ids=sorted(wanted)) if wanted else []
        return wanted - {manifest.id for manifest in known}

    def newest_attempt(self, manifest_id: int) -> int:
        return self._database.attempts.newest(manifest_id)

    def pipeline_names(self) -> set[str]:
        return {
            self._pipeline_name,
            *(row["name"] for row in self._database.pipelines.former_names(self._pipeline_name)),
        }

    def objects(self, manifest_id: int | None = None) -> list[tuple[int, PublishedObject]]:
        of = [manifest_id] if manifest_id is not None else None
        published = self._database.publications.objects(self._pipeline_name if of is None else None, of)
        return [(id_, object_) for id_, _, object_ in published if object_.sink == self._sink_name]

    def published_by_retired(self) -> set[tuple[str, str]]:
        places: set[tuple[str, str]] = set()
        for row in self._database.sinks.published_by_retired(self._pipeline_name):
            record = RecordName(self._pipeline_name, row["manifest_id"], row["attempt"])
            places |= {(row["root"], key) for key in (str(record), *row["paths"])}
        return places


def work_of(
    database: ManifestDatabase,
    manifest_id: int,
    attempt: int,
    decode: dict[str, object],
    transforms: Sequence[TransformOrder],
) -> Work:
    """Return what an attempt is about to write, for the sinks that prepare for it."""
    marks = MarkSession(
        database.session,
        database.transaction,
        database.user,
        partial(database.attempts.lock_number, manifest_id, attempt),
    )
    return Work(
        manifest_id,
        attempt,
        decode,
        transforms,
        partial(database.chains.generations, manifest_id),
        partial(_may_have_put, database, manifest_id, attempt),
        marks,
    )


def _may_have_put(database: ManifestDatabase, manifest_id: int, attempt: int) -> bool:
    """Return whether a lower attempt may have put output of a manifest into the target.

    An attempt puts output only after its receipt was stored, and it can store none after a higher attempt has started.
    A receipt for any sink counts: a sink that is retired now may have written to the same target. An empty target
    proves nothing: its content may have been deleted, or restored from an older copy.
    """
    return any(stored.receipt.attempt < attempt for stored in database.attempts.receipts(manifest_id))
