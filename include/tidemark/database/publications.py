"""Stores publications: which attempt each sink shows of each manifest."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import Counts
from tidemark.model.receipt import PublishedObject, object_from


class Publications(Part):
    def publish(self, manifest_id: int, newest: int, sink: str, attempt: int, digest: str, counts: Row) -> bool:
        """Publish ``attempt``, with its rows by hour; hours whose counts change are open again.

        Returns False if ``newest`` is no longer the newest attempt, or if the output of ``attempt`` was taken back.
        """
        values = {"manifest_id": manifest_id, "newest": newest, "sink": sink, "attempt": attempt, "digest": digest}
        with self._sql.transaction():
            if not self._sql.rows("publish", **values, counts=Jsonb(counts)):
                return False
            self._sql.rows("lock_hours_of", manifest_id=manifest_id)
            self._count_hours([manifest_id])
            return True

    def retire_sink(self, pipeline_name: str, name: str) -> None:
        """Retire a sink: its publications no longer count, nor their rows by hour. The caller has locked the hours of
        the pipeline in the open transaction."""
        self._sql.rows("retire_sink", pipeline_name=pipeline_name, sink=name)
        counted = self._sql.ids("counted_by", pipeline_name=pipeline_name, sink=name)
        if counted:
            self._count_hours(counted)

    def _count_hours(self, manifest_ids: Sequence[int]) -> None:
        """Count the rows by hour of these manifests again, by what the sinks show now. All are of one pipeline, and the
        caller has locked its hours."""
        changed = self._sql.rows("count_hours", manifest_ids=list(manifest_ids))
        if changed:
            hours = [row["hour"] for row in changed]
            self._sql.rows("sum_hours", pipeline_name=changed[0]["pipeline"], hours=hours)

    def any_in(self, pipeline_name: str, sink: str) -> bool:
        """Return whether a manifest of the pipeline is published in the sink."""
        return bool(self._sql.rows("has_published", pipeline_name=pipeline_name, sink=sink))

    def in_sink(self, pipeline_name: str, sink: str) -> dict[int, bool]:
        """Return the manifests that are published in a sink, each with whether it is published only there."""
        rows = self._sql.rows("published_in", pipeline_name=pipeline_name, sink=sink)
        return {row["id"]: row["alone"] for row in rows}

    def lacking(self, pipeline_name: str, sink: str) -> list[int]:
        """Return the done manifests that have no publication in a sink."""
        return self._sql.ids("lacking", pipeline_name=pipeline_name, sink=sink)

    def left_out(self, pipeline_name: str) -> dict[str, list[int]]:
        """Return, by sink, the manifests that were done without it although it was known by then."""
        manifests: dict[str, list[int]] = {}
        for row in self._sql.rows("left_out", pipeline_name=pipeline_name):
            manifests.setdefault(row["sink"], []).append(row["id"])
        return manifests

    def count_lacking(self, pipeline_name: str, sink: str) -> int:
        """Return the number of manifests that ``lacking`` returns."""
        return int(self._sql.rows("count_lacking", pipeline_name=pipeline_name, sink=sink)[0]["manifests"])

    def nowhere(self, pipeline_name: str) -> list[int]:
        """Return the done manifests that no sink shows because the sinks that did are retired; the oldest 101."""
        return self._sql.ids("published_nowhere", pipeline_name=pipeline_name)

    def out_of_step(
        self, pipeline_name: str, sink: str, evidence: Mapping[int, int], above: int = 0
    ) -> dict[int, bool]:
        """Return the done manifests with ids above ``above`` whose ``evidence`` (attempts by manifest id) is not that
        of the published attempt; true if it is missing or of a lower attempt."""
        rows = self._sql.rows("out_of_step", pipeline_name=pipeline_name, sink=sink, above=above, **_held(evidence))
        return {row["manifest_id"]: (row["evidence"] or 0) < row["published"] for row in rows}

    def evidence_apart(self, sink: str, evidence: Mapping[int, int]) -> list[int]:
        """Return the manifests whose ``evidence`` (attempts by manifest id) is not of the published attempt."""
        rows = self._sql.rows("evidence_apart", sink=sink, first=min(evidence, default=0), **_held(evidence))
        return [row["manifest_id"] for row in rows]

    def made_otherwise(self, pipeline_name: str, sinks: Sequence[str], fingerprints: Sequence[str]) -> list[int]:
        """Return the done manifests with a publication that was made with other ``fingerprints``; pinned schemas do not
        count.

        A fingerprint contains the settings of all sinks of its attempt, so manifests with sinks other than ``sinks``
        are left out.
        """
        values = {"sinks": list(sinks), "fingerprints": list(fingerprints)}
        return self._sql.ids("made_otherwise", pipeline_name=pipeline_name, **values)

    def objects(
        self, pipeline_name: str | None = None, ids: Sequence[int] | None = None
    ) -> list[tuple[int, str, PublishedObject]]:
        """Return (manifest id, lake root, object) of every published object, sorted by manifest and path."""
        rows = self._sql.rows("published_objects", pipeline_name=pipeline_name, ids=None if ids is None else list(ids))
        return [(row["manifest_id"], row["root"], object_from(row["object"])) for row in rows]

    def revisions(self, ids: Sequence[int]) -> dict[int, int]:
        """Return how often the output that readers see of published manifests has changed: 1 is the first one."""
        return {row["manifest_id"]: int(row["revision"]) for row in self._sql.rows("revisions", ids=list(ids))}

    def notes(self, pipeline_name: str) -> list[Row]:
        """Return the notes of the published attempts."""
        return self._sql.rows("published_notes", pipeline_name=pipeline_name)

    def sums(self, pipeline_name: str) -> Row:
        """Return the sums of ``read``, ``written`` and ``dead_lettered`` records that are published; every manifest
        counts in one sink."""
        return self._sql.rows("published_sums", pipeline_name=pipeline_name)[0]

    def newest_counts(self, pipeline_name: str) -> list[Counts]:
        """Return the counts of the newest two manifests that read records, newest first; looks at the newest 50 done
        manifests."""
        return [Counts(**row["counts"]) for row in self._sql.rows("newest_counts", pipeline_name=pipeline_name)]

    def stale_in_sinks(self, pipeline_name: str) -> list[tuple[int, str]]:
        """Return (manifest id, sink) for each sink whose newest manifest with rows changed nothing: for each key the
        table already had a newer row. Looks at the newest 50 done manifests."""
        rows = self._sql.rows("stale_in_sinks", pipeline_name=pipeline_name)
        return [(row["manifest_id"], row["sink"]) for row in rows]

    def record_bytes(self, pipeline_name: str) -> float | None:
        """Return the mean bytes of key and value per record, measured on the newest published manifests; None before
        the first."""
        value = self._sql.rows("record_bytes", pipeline_name=pipeline_name)[0]["record_bytes"]
        return None if value is None else float(value)

    def with_dead_letters(
        self, pipeline_name: str, *, manifest_id: int | None = None, newest: int | None = None
    ) -> list[int]:
        """Return the manifests of which a sink shows dead letters, oldest first: all, the one of an id, or the
        newest."""
        values = {"manifest_id": manifest_id, "newest": newest}
        return sorted(self._sql.ids("with_dead_letters", pipeline_name=pipeline_name, **values))


def _held(evidence: Mapping[int, int]) -> dict[str, Any]:
    """Return attempts by manifest id as the two array parameters that queries unnest."""
    return {"manifests": list(evidence), "attempts": list(evidence.values())}
