"""Counts the lake with DuckDB, an engine that knows nothing about Tidemark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from sandbox.demo import flights

ATTEMPTS = 5


@dataclass(frozen=True)
class LakeCounts:
    """The content of the lake at one moment; ``distinct`` counts different (_topic, _partition, _offset)."""

    files: int = 0
    rows: int = 0
    distinct: int = 0
    slices: int = 0
    carriers: dict[str, int] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)

    @property
    def checks(self) -> list[tuple[str, int, int]]:
        """Return (name, counted, published) of every total that must agree at the end."""
        return [
            ("flights", self.rows, flights.FLIGHTS),
            ("distinct (topic, partition, offset)", self.distinct, flights.FLIGHTS),
            *((f"carrier {name}", self.carriers.get(name, 0), number) for name, number in flights.CARRIERS.items()),
            *((f"from {name}", self.origins.get(name, 0), number) for name, number in flights.ORIGINS.items()),
        ]

    @property
    def wrong(self) -> list[str]:
        """Return one line for each total that does not agree."""
        return [
            f"{name}: {counted:,}, published {published:,}"
            for name, counted, published in self.checks
            if counted != published
        ]


def listed(lake: Path) -> list[str]:
    """Return every file that a listing of the folders shows. While a publish runs, this may be only a part of a
    slice.
    """
    return sorted(str(path) for path in (lake / "raw" / flights.TOPIC).glob("**/*.parquet"))


def count(files: Callable[[], Sequence[str]]) -> LakeCounts:
    """Count the rows of the files and their slices. Calls ``files`` again if a file disappears meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _count(files())
        except duckdb.IOException:
            # A file of a fenced attempt was removed after it was listed.
            if attempt == ATTEMPTS:
                raise
        except RuntimeError as error:
            # DuckDB raises a RuntimeError only when a signal interrupts it; its own errors are of other types.
            raise KeyboardInterrupt from error
    raise AssertionError("unreachable")


def _count(files: Sequence[str]) -> LakeCounts:
    if not files:
        return LakeCounts()
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE lake AS SELECT _topic, _partition, _offset, _manifest_id, carrier, origin "
            "FROM read_parquet($files, hive_partitioning = false)",
            {"files": list(files)},
        )
        counts = connection.execute(
            "SELECT count(*), count(DISTINCT (_topic, _partition, _offset)), count(DISTINCT _manifest_id) FROM lake"
        ).fetchone()
        assert counts is not None
        rows, distinct, slices = counts
        carriers = connection.execute("SELECT carrier, count(*) FROM lake GROUP BY carrier").fetchall()
        origins = connection.execute("SELECT origin, count(*) FROM lake GROUP BY origin").fetchall()
    return LakeCounts(len(files), rows, distinct, slices, dict(carriers), dict(origins))
