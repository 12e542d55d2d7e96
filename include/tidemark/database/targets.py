"""Remembers where sinks write, and how far this database has published there."""

from collections.abc import Collection, Mapping

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row


class Targets(Part):
    def get(self, target: str) -> Row | None:
        """``identity``, ``position``, ``table_id`` and ``columns`` of a target as of its last publication from here."""
        return self._sql.row("target", target=target)

    def known(self) -> list[str]:
        """Those of all sinks that were ever known."""
        return [row["target"] for row in self._sql.rows("targets")]

    def remember(
        self,
        target: str,
        identity: str,
        position: int,
        table_id: str | None,
        columns: Mapping[str, str] | None,
    ) -> None:
        """Store the position of a target, unless a higher one is known, which table it is, and the columns that rows
        of this publication have there; None keeps those that are known."""
        values = {"table_id": table_id, "columns": None if columns is None else Jsonb(dict(columns))}
        self._sql.changed("remember_target", target=target, identity=identity, position=position, **values)

    def accept(self, target: str, identity: str, position: int, table_id: str | None) -> None:
        """Store identity and position of a target that went back, or is another one; its columns are not known."""
        self._sql.changed("accept_target", target=target, identity=identity, position=position, table_id=table_id)

    def published(self, target: str) -> list[tuple[str, str, int]]:
        """Pipeline and name of each sink with this target, not retired, and the number of manifests that are published
        there."""
        rows = self._sql.rows("published_in_target", target=target)
        return [(row["pipeline"], row["sink"], row["manifests"]) for row in rows]

    def writers(self, targets: Collection[str], *, retired: bool) -> list[tuple[str, str, str]]:
        """Pipeline, name and target of the sinks that have one of these targets; with ``retired`` also of retired ones
        that have published."""
        rows = self._sql.rows("writers", targets=sorted(targets), retired=retired)
        return [(row["pipeline"], row["name"], row["target"]) for row in rows]

    def other_writers(self, pipeline_name: str, target: str) -> list[str]:
        """The other pipelines with a sink, not retired, that has this target."""
        return [row["pipeline"] for row in self._sql.rows("other_writers", pipeline_name=pipeline_name, target=target)]
