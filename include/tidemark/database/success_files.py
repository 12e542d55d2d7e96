"""Notes which success files of a sink say that an hour is complete."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from tidemark.database.statements import Part, Row


class SuccessFiles(Part):
    def missing(self, pipeline_name: str, sink: str, whose: str | None) -> list[Row]:
        """hour, revision, rows, late of the complete hours that a sink's success files do not say yet, or not under
        this name; ``shown``: they say some revision, under the name of the row's ``whose``; ``whole``: it shows a
        publication of every manifest of the hour."""
        return self._sql.rows("without_success_file", pipeline_name=pipeline_name, sink=sink, whose=whose)

    def note(self, pipeline_name: str, sink: str, whose: str | None, revisions: Mapping[datetime, int]) -> None:
        """Note which revision of each hour the success files of a sink say, and whose name they have."""
        values = {"whose": whose, "hours": list(revisions), "revisions": list(revisions.values())}
        self._sql.changed("note_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def forget(self, pipeline_name: str, sink: str, revisions: Mapping[datetime, int]) -> None:
        """Note that hours have no success files of these revisions or lower ones."""
        values = {"hours": list(revisions), "revisions": list(revisions.values())}
        self._sql.changed("forget_success_files", pipeline_name=pipeline_name, sink=sink, **values)

    def plain(self, pipeline_name: str, sink: str, hours: Sequence[datetime] | None) -> Iterator[datetime]:
        """The hours, all or some, whose success files of a sink have no pipeline in their name; read page by page, so
        that a transaction in which each is looked at is not idle for long."""
        after = None
        names = {"pipeline_name": pipeline_name, "sink": sink, "hours": None if hours is None else list(hours)}
        while page := [row["hour"] for row in self._sql.rows("plain_success_files", **names, after=after)]:
            yield from page
            after = page[-1]

    def given_up(self, pipeline_name: str, sink: str) -> list[Row]:
        """path, topic of each file with rows that a person has given up in a sink, and the hours of its manifest."""
        return self._sql.rows("given_up_files", pipeline_name=pipeline_name, sink=sink)
