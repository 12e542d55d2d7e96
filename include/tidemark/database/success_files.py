"""Stores which revision of each hour the success files of a sink show."""

from collections.abc import Mapping
from datetime import datetime

from tidemark.database.statements import Part, Row


class SuccessFiles(Part):
    def missing(self, pipeline_name: str, sink: str) -> list[Row]:
        """Return hour, revision, rows and late of the complete hours whose newest revision has no success files yet.

        ``shown``: an older revision has them. ``whole``: every manifest of the hour is published in the sink.
        """
        return self._sql.rows("without_success_file", pipeline_name=pipeline_name, sink=sink)

    def note(self, pipeline_name: str, sink: str, revisions: Mapping[datetime, int]) -> None:
        """Store, for each hour, the revision that the success files of a sink now have. A lower revision never
        replaces a higher one."""
        values = {"hours": list(revisions), "revisions": list(revisions.values())}
        self._sql.changed("note_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def forget(self, pipeline_name: str, sink: str, revisions: Mapping[datetime, int]) -> None:
        """Store that hours have no success files of these revisions or lower ones."""
        values = {"hours": list(revisions), "revisions": list(revisions.values())}
        self._sql.changed("forget_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def given_up(self, pipeline_name: str, sink: str) -> list[Row]:
        """Return path and topic of each file whose rows were given up in this sink (``tidemark accept damage``), with
        the event hours of its manifest."""
        return self._sql.rows("given_up_files", pipeline_name=pipeline_name, sink=sink)
