"""Notes which success files of a sink say that an hour is complete."""

from collections.abc import Mapping
from datetime import datetime

from tidemark.database.statements import Part, Row


class SuccessFiles(Part):
    def missing(self, pipeline_name: str, sink: str) -> list[Row]:
        """hour, revision, rows, late of the complete hours that a sink's success files do not say yet; ``shown``: they
        say some revision; ``whole``: the sink shows a publication of every manifest of the hour."""
        return self._sql.rows("without_success_file", pipeline_name=pipeline_name, sink=sink)

    def note(self, pipeline_name: str, sink: str, revisions: Mapping[datetime, int]) -> None:
        """Note which revision of each hour the success files of a sink say."""
        values = {"hours": list(revisions), "revisions": list(revisions.values())}
        self._sql.changed("note_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def forget(self, pipeline_name: str, sink: str, revisions: Mapping[datetime, int]) -> None:
        """Note that hours have no success files of these revisions or lower ones."""
        values = {"hours": list(revisions), "revisions": list(revisions.values())}
        self._sql.changed("forget_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def given_up(self, pipeline_name: str, sink: str) -> list[Row]:
        """path, topic of each file with rows that a person has given up in a sink, and the hours of its manifest."""
        return self._sql.rows("given_up_files", pipeline_name=pipeline_name, sink=sink)
