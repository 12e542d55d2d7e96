"""Stores the sinks of pipelines and their folders, and renames sinks."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import KnownSink


class Sinks(Part):
    def known(self, pipeline_name: str) -> list[KnownSink]:
        """Return the known sinks of a pipeline, also retired ones, sorted by name."""
        return [KnownSink(**row) for row in self._sql.rows("sinks", pipeline_name=pipeline_name)]

    def current_names(self, pipeline_name: str) -> list[str]:
        """Return the names of the known sinks that are not retired."""
        return [sink.name for sink in self.known(pipeline_name) if sink.is_current]

    def pin_record_key(self, pipeline_name: str, sink: str, columns: Sequence[str]) -> None:
        """Store the key columns of a sink with ``key: record_key``, unless some are stored."""
        self._sql.rows("pin_record_key", pipeline_name=pipeline_name, sink=sink, columns=list(columns))

    def folders(self, topics: Sequence[str]) -> list[Row]:
        """Return the folders to which each pipeline writes, or wrote, these topics; columns as of ``StreamFolders``."""
        return self._sql.rows("stream_folders", topics=list(topics))

    def lock_folders(self) -> None:
        """Lock the folders: until the transaction ends, no other pipeline can claim some."""
        self._sql.rows("lock_folders")

    def remember_folders(self, folders: Sequence[Mapping[str, Any]]) -> None:
        """Store the folders to which a pipeline writes its topics, in rows as ``folders`` returns them."""
        for row in folders:
            self._sql.rows("remember_folders", **{**row, "shared_with": list(row["shared_with"])})

    def rename(self, pipeline_name: str, old: str, new: str, fingerprints: Mapping[str, str]) -> None:
        """Give a sink another name in the database; ``end_rename`` follows when its target has the name too.

        ``fingerprints`` maps each fingerprint of the pipeline with the old name to that with the new name, without
        pinned schemas.
        """
        names = {"pipeline_name": pipeline_name, "old": old, "new": new}
        self._sql.rows("rename_sink", **names)
        self._sql.rows("rename_publications", **names)
        self._sql.rows("rename_in_damage", **names)
        self._sql.rows("rename_in_folders", **names)
        self._sql.rows("rename_in_success_files", **names)
        self._sql.rows("rename_in_attempts", **names)
        before, after = list(fingerprints), list(fingerprints.values())
        self._sql.rows("rename_in_fingerprints", pipeline_name=pipeline_name, before=before, after=after)

    def end_rename(self, pipeline_name: str, new: str) -> None:
        self._sql.rows("end_rename", pipeline_name=pipeline_name, new=new)

    def published_by_retired(self, pipeline_name: str) -> list[Row]:
        """Return each publication in a retired sink: root, manifest_id, attempt, paths."""
        return self._sql.rows("published_by_retired_sinks", pipeline_name=pipeline_name)
