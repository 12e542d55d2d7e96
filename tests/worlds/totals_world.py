"""A pipeline that writes totals into PostgreSQL, with or without a lake, and what its readers must see."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from tests.worlds.table_world import TableWorld
from tests.worlds.world import KEYS, Place, World, happened

AGGREGATE = {
    "group_by": ["k"],
    "window": "1h",
    "values": {
        "records": "count", "named": "count(name)", "n_sum": "sum(n)", "least": "min(n)", "last_name": "max(name)",
        "mean": "average(n)",
    },
}  # fmt: skip
COLUMNS = "records, named, n_sum, least, last_name, mean_sum, mean_count"
Key = tuple[int, datetime]


def totals_sink(**options: Any) -> dict[str, Any]:
    """The entry of ``sinks`` for the totals of these tests."""
    settings = {"connection": "warehouse", "table": "totals", "auto_create": True, "aggregate": AGGREGATE}
    return {"totals": {**settings, **options}}


@dataclass
class TotalsWorld(TableWorld):
    """A world with totals by ``k`` and hour as its sink; ``has_lake`` adds a lake."""

    sink: ClassVar[str] = "totals"
    written: ClassVar[str] = "public.totals"

    def entry(self) -> dict[str, Any]:
        return totals_sink()

    def damage(self, manifest: dict[str, Any]) -> None:
        """Change a total of a manifest, and delete an object of the lake if there is one."""
        self.execute(
            "UPDATE public.totals SET n_sum = n_sum + 1 WHERE (k, window_start) IN "
            f"(SELECT k, window_start FROM public.totals_contributions WHERE _manifest_id = {manifest['id']})"
        )
        if self.has_lake:
            World.damage(self, manifest)

    def rows(self) -> dict[Any, tuple[Any, ...]]:
        """What a reader sees, by key and window; what was contributed comes to the same."""
        [there] = self.query("SELECT to_regclass('public.totals') IS NOT NULL AS there")
        rows = self.query(f"SELECT k, window_start, _rows, {COLUMNS} FROM public.totals") if there["there"] else []
        return {(row.pop("k"), row.pop("window_start")): tuple(row.values()) for row in rows}

    def latest(self, covered: Counter[Place]) -> dict[Any, tuple[Any, ...]]:
        """The totals when only these offsets were counted."""
        numbers: dict[Key, list[int]] = defaultdict(list)
        for number in range(self.produced):
            place = (self.topic, number % self.partitions, number // self.partitions)
            if number not in self.bad and place in covered:
                numbers[key_of(number)].append(number)
        return {key: total(members) for key, members in numbers.items()}


def key_of(number: int) -> Key:
    """The key and the window of the record with this number."""
    return number % KEYS, happened(number).replace(minute=0)


def total(numbers: list[int]) -> tuple[Any, ...]:
    """``_rows`` and ``COLUMNS`` of the records with these numbers."""
    count, summed = len(numbers), sum(numbers)
    return count, count, count, summed, min(numbers), max(f"r{number}" for number in numbers), summed, count
