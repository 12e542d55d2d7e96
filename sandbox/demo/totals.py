"""The lake as an engine sees it that knows nothing of Tidemark: DuckDB over Parquet files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from sandbox.demo import flights

ATTEMPTS = 5


@dataclass(frozen=True)
class Totals:
    """What lies in the lake at one moment; ``distinct`` counts (_topic, _partition, _offset)."""

    files: int = 0
    rows: int = 0
    distinct: int = 0
    slices: int = 0
    carriers: dict[str, int] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)

    @property
    def checks(self) -> list[tuple[str, int, int]]:
        """(what, found, published) of everything that must agree at the end."""
        return [
            ("flights", self.rows, flights.FLIGHTS),
            ("distinct (topic, partition, offset)", self.distinct, flights.FLIGHTS),
            *((f"carrier {name}", self.carriers.get(name, 0), right) for name, right in flights.CARRIERS.items()),
            *((f"from {name}", self.origins.get(name, 0), right) for name, right in flights.ORIGINS.items()),
        ]

    @property
    def wrong(self) -> list[str]:
        """What does not agree, in words."""
        return [f"{what}: {found:,}, published {right:,}" for what, found, right in self.checks if found != right]


def listed(lake: Path) -> list[str]:
    """Every file that a listing of the folders shows; while a publish runs this may be a part of a slice."""
    return sorted(str(path) for path in (lake / "raw" / flights.TOPIC).glob("**/*.parquet"))


def count(files: Callable[[], Sequence[str]]) -> Totals:
    """Count the rows of the files, and the slices they come from; asks for the files again when one of them is gone."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _count(files())
        except duckdb.IOException:
            # A file of a fenced attempt was removed between the listing and the reading of it.
            if attempt == ATTEMPTS:
                raise
        except RuntimeError as error:
            # No error of DuckDB's own family is one: it met a signal while it was counting, and says so like this.
            raise KeyboardInterrupt from error
    raise AssertionError("unreachable")


def _count(files: Sequence[str]) -> Totals:
    if not files:
        return Totals()
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE found AS SELECT _topic, _partition, _offset, _manifest_id, carrier, origin "
            "FROM read_parquet($files, hive_partitioning = false)",
            {"files": list(files)},
        )
        counts = connection.execute(
            "SELECT count(*), count(DISTINCT (_topic, _partition, _offset)), count(DISTINCT _manifest_id) FROM found"
        ).fetchone()
        assert counts is not None
        rows, distinct, slices = counts
        carriers = connection.execute("SELECT carrier, count(*) FROM found GROUP BY carrier").fetchall()
        origins = connection.execute("SELECT origin, count(*) FROM found GROUP BY origin").fetchall()
    return Totals(len(files), rows, distinct, slices, dict(carriers), dict(origins))
