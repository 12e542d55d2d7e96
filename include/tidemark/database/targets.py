"""Stores the targets of sinks, and how far this database has published there."""

from collections.abc import Collection, Mapping

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row


class Targets(Part):
    def get(self, target: str) -> Row | None:
        """Return ``identity``, ``position``, ``table_id`` and ``columns`` of a target, as stored at its last
        publication."""
        return self._sql.row("target", target=target)

    def known(self) -> list[str]:
        """Return the targets of all sinks that were ever known."""
        return [row["target"] for row in self._sql.rows("targets")]

    def remember(
        self,
        target: str,
        identity: str,
        position: int,
        table_id: str | None,
        columns: Mapping[str, str] | None,
    ) -> None:
        """Store the position of a target (unless a higher one is stored), its table id, and the columns of the rows of
        this publication. None keeps the stored value."""
        values = {"table_id": table_id, "columns": None if columns is None else Jsonb(dict(columns))}
        self._sql.changed("remember_target", target=target, identity=identity, position=position, **values)

    def accept(self, target: str, identity: str, position: int, table_id: str | None) -> None:
        """Store identity and position of a target that went back or is another one, and forget its columns."""
        self._sql.changed("accept_target", target=target, identity=identity, position=position, table_id=table_id)

    def published(self, target: str) -> list[tuple[str, str, int]]:
        """Return pipeline and name of each sink with this target that is not retired, and the number of manifests that
        are published there."""
        rows = self._sql.rows("published_in_target", target=target)
        return [(row["pipeline"], row["sink"], row["manifests"]) for row in rows]

    def writers(self, targets: Collection[str], *, retired: bool) -> list[tuple[str, str, str]]:
        """Return pipeline, name and target of the sinks with one of these targets; with ``retired`` also of retired
        sinks that have published."""
        rows = self._sql.rows("writers", targets=sorted(targets), retired=retired)
        return [(row["pipeline"], row["name"], row["target"]) for row in rows]

    def other_writers(self, pipeline_name: str, target: str) -> list[str]:
        """Return the other pipelines with a sink that has this target and is not retired."""
        return [row["pipeline"] for row in self._sql.rows("other_writers", pipeline_name=pipeline_name, target=target)]
