"""Remembers where sinks write, and how far this database has published there."""

from collections.abc import Collection

from tidemark.database.statements import Part, Row


class Targets(Part):
    def get(self, target: str) -> Row | None:
        """``identity`` and ``position`` of a target when this database last published there."""
        return self._sql.row("target", target=target)

    def known(self) -> list[str]:
        """Those of all sinks that were ever known."""
        return [row["target"] for row in self._sql.rows("targets")]

    def remember(self, target: str, identity: str, position: int) -> None:
        """Store the position of a target, unless a higher one is known."""
        self._sql.changed("remember_target", target=target, identity=identity, position=position)

    def accept(self, target: str, identity: str, position: int) -> None:
        """Store identity and position of a target that went back, or is another one."""
        self._sql.changed("accept_target", target=target, identity=identity, position=position)

    def writers(self, targets: Collection[str], *, retired: bool) -> list[tuple[str, str, str]]:
        """Pipeline, name and target of the sinks that have one of these targets; with ``retired`` also of retired ones
        that have published."""
        rows = self._sql.rows("writers", targets=sorted(targets), retired=retired)
        return [(row["pipeline"], row["name"], row["target"]) for row in rows]

    def other_writers(self, pipeline_name: str, target: str) -> list[str]:
        """The other pipelines with a sink, not retired, that has this target."""
        return [row["pipeline"] for row in self._sql.rows("other_writers", pipeline_name=pipeline_name, target=target)]
