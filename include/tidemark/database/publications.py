"""Publishes, and says what each sink shows of each manifest."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import Counts
from tidemark.model.receipt import PublishedObject, object_from


class Publications(Part):
    def publish(self, manifest_id: int, newest: int, sink: str, attempt: int, digest: str, counts: Row) -> bool:
        """Make ``attempt`` what readers see, with its rows by hour; hours that change are open again.

        False when ``newest`` is not the newest attempt any more, or when the output of ``attempt`` was taken back.
        """
        values = {"manifest_id": manifest_id, "newest": newest, "sink": sink, "attempt": attempt, "digest": digest}
        with self._sql.transaction():
            if not self._sql.rows("publish", **values, counts=Jsonb(counts)):
                return False
            self._sql.rows("lock_hours_of", manifest_id=manifest_id)
            self._count_hours([manifest_id])
            return True

    def retire_sink(self, pipeline_name: str, name: str) -> None:
        """From here on the sink's publications do not count, also not as rows of an hour. The caller has locked the
        hours of the pipeline, in the open transaction."""
        self._sql.rows("retire_sink", pipeline_name=pipeline_name, sink=name)
        counted = self._sql.ids("counted_by", pipeline_name=pipeline_name, sink=name)
        if counted:
            self._count_hours(counted)

    def _count_hours(self, manifest_ids: Sequence[int]) -> None:
        """By what the sinks show now; the caller has locked the hours of the pipeline, of which all of them are."""
        changed = self._sql.rows("count_hours", manifest_ids=list(manifest_ids))
        if changed:
            hours = [row["hour"] for row in changed]
            self._sql.rows("sum_hours", pipeline_name=changed[0]["pipeline"], hours=hours)

    def any_in(self, pipeline_name: str, sink: str) -> bool:
        """Return whether a manifest of the pipeline is published in the sink."""
        return bool(self._sql.rows("has_published", pipeline_name=pipeline_name, sink=sink))

    def in_sink(self, pipeline_name: str, sink: str) -> dict[int, bool]:
        """The manifests that are published in a sink, and of each whether they are published there alone."""
        rows = self._sql.rows("published_in", pipeline_name=pipeline_name, sink=sink)
        return {row["id"]: row["alone"] for row in rows}

    def lacking(self, pipeline_name: str, sink: str) -> list[int]:
        """The done manifests that a sink has no publication of."""
        return self._sql.ids("lacking", pipeline_name=pipeline_name, sink=sink)

    def left_out(self, pipeline_name: str) -> dict[str, list[int]]:
        """By sink the manifests that were done without it although it was known by then."""
        manifests: dict[str, list[int]] = {}
        for row in self._sql.rows("left_out", pipeline_name=pipeline_name):
            manifests.setdefault(row["sink"], []).append(row["id"])
        return manifests

    def count_lacking(self, pipeline_name: str, sink: str) -> int:
        """Return how many ``lacking`` there are."""
        return int(self._sql.rows("count_lacking", pipeline_name=pipeline_name, sink=sink)[0]["manifests"])

    def nowhere(self, pipeline_name: str) -> list[int]:
        """The done manifests that no sink shows any more, since those that did are retired; the oldest 101."""
        return self._sql.ids("published_nowhere", pipeline_name=pipeline_name)

    def out_of_step(
        self, pipeline_name: str, sink: str, evidence: Mapping[int, int], above: int = 0
    ) -> dict[int, bool]:
        """The done manifests with ids above ``above`` where the ``evidence``, attempts by manifest id, is not that of
        the published attempt; true for those without any, or with that of a lower attempt."""
        rows = self._sql.rows("out_of_step", pipeline_name=pipeline_name, sink=sink, above=above, **_held(evidence))
        return {row["manifest_id"]: (row["evidence"] or 0) < row["published"] for row in rows}

    def evidence_apart(self, sink: str, evidence: Mapping[int, int]) -> list[int]:
        """The manifests where ``evidence`` (attempts by manifest id) is not the published attempt."""
        rows = self._sql.rows("evidence_apart", sink=sink, first=min(evidence, default=0), **_held(evidence))
        return [row["manifest_id"] for row in rows]

    def made_otherwise(self, pipeline_name: str, sinks: Sequence[str], fingerprints: Sequence[str]) -> list[int]:
        """The done manifests with a publication by settings of another fingerprint; pinned schemas are left out.

        A fingerprint has the settings of all sinks of its attempt: one with another sink than ``sinks`` tells nothing.
        """
        values = {"sinks": list(sinks), "fingerprints": list(fingerprints)}
        return self._sql.ids("made_otherwise", pipeline_name=pipeline_name, **values)

    def objects(
        self, pipeline_name: str | None = None, ids: Sequence[int] | None = None
    ) -> list[tuple[int, str, PublishedObject]]:
        """(manifest id, lake root, object) of every published object, by manifest and path."""
        rows = self._sql.rows("published_objects", pipeline_name=pipeline_name, ids=None if ids is None else list(ids))
        return [(row["manifest_id"], row["root"], object_from(row["object"])) for row in rows]

    def revisions(self, ids: Sequence[int]) -> dict[int, int]:
        """Return how often readers were given other output of published manifests: 1 is the first publication."""
        return {row["manifest_id"]: int(row["revision"]) for row in self._sql.rows("revisions", ids=list(ids))}

    def notes(self, pipeline_name: str) -> list[Row]:
        """The notes of attempts that readers see."""
        return self._sql.rows("published_notes", pipeline_name=pipeline_name)

    def sums(self, pipeline_name: str) -> Row:
        """``read``, ``written`` and ``dead_lettered`` records of what is published, in one sink of each manifest."""
        return self._sql.rows("published_sums", pipeline_name=pipeline_name)[0]

    def newest_counts(self, pipeline_name: str) -> list[Counts]:
        """Return what the newest two manifests counted, of the newest 50 done ones that have read records, newest
        first."""
        return [Counts(**row["counts"]) for row in self._sql.rows("newest_counts", pipeline_name=pipeline_name)]

    def stale_in_sinks(self, pipeline_name: str) -> list[tuple[int, str]]:
        """(manifest id, sink) where a newer row stood before each row of the newest manifest that has rows there."""
        rows = self._sql.rows("stale_in_sinks", pipeline_name=pipeline_name)
        return [(row["manifest_id"], row["sink"]) for row in rows]

    def record_bytes(self, pipeline_name: str) -> float | None:
        """Mean bytes of key and value per record, measured on the newest published manifests; None before the first."""
        value = self._sql.rows("record_bytes", pipeline_name=pipeline_name)[0]["record_bytes"]
        return None if value is None else float(value)

    def with_dead_letters(
        self, pipeline_name: str, *, manifest_id: int | None = None, newest: int | None = None
    ) -> list[int]:
        """The manifests of which a sink shows dead letters, oldest first: all, the one of an id, or the newest."""
        values = {"manifest_id": manifest_id, "newest": newest}
        return sorted(self._sql.ids("with_dead_letters", pipeline_name=pipeline_name, **values))


def _held(evidence: Mapping[int, int]) -> dict[str, Any]:
    """Attempts by manifest id as the two parameters that queries unnest."""
    return {"manifests": list(evidence), "attempts": list(evidence.values())}
