"""Remembers the sinks of pipelines and their folders; renames and retires sinks."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import KnownSink


class Sinks(Part):
    def known(self, pipeline_name: str) -> list[KnownSink]:
        """The known sinks of a pipeline by name, retired ones too."""
        return [KnownSink(**row) for row in self._sql.rows("sinks", pipeline_name=pipeline_name)]

    def current_names(self, pipeline_name: str) -> list[str]:
        """The names of the known sinks that are not retired."""
        return [sink.name for sink in self.known(pipeline_name) if sink.is_current]

    def pin_record_key(self, pipeline_name: str, sink: str, columns: Sequence[str]) -> None:
        """Store the key of a sink with ``key: record_key``, unless it has one."""
        self._sql.rows("pin_record_key", pipeline_name=pipeline_name, sink=sink, columns=list(columns))

    def folders(self, topics: Sequence[str]) -> list[Row]:
        """Return where each pipeline writes, or wrote, these topics: the columns of ``StreamFolders``."""
        return self._sql.rows("stream_folders", topics=list(topics))

    def lock_folders(self) -> None:
        """Until the transaction ends, no other pipeline can take folders."""
        self._sql.rows("lock_folders")

    def remember_folders(self, folders: Sequence[Mapping[str, Any]]) -> None:
        """Store where a pipeline writes its topics, in rows as ``folders`` returns them."""
        for row in folders:
            self._sql.rows("remember_folders", **{**row, "shared_with": list(row["shared_with"])})

    def rename(self, pipeline_name: str, old: str, new: str, fingerprints: Mapping[str, str]) -> None:
        """Give a sink another name, here and not in its target: ``end_rename`` follows when the target has it too.

        ``fingerprints`` has those of the pipeline with the new name by those with the old one, without pinned schemas.
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
        """Each publication in a retired sink: root, manifest_id, attempt, paths."""
        return self._sql.rows("published_by_retired_sinks", pipeline_name=pipeline_name)
