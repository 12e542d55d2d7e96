"""The lake as an engine sees it that knows nothing of Tidemark: DuckDB over a listing of the Parquet files."""

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


def count(lake: Path) -> Totals:
    """Count what a listing shows now; while a publish runs this may be a part of it."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _count(lake)
        except duckdb.IOException:
            # A file of a fenced attempt was removed between the listing and the reading of it.
            if attempt == ATTEMPTS:
                raise
        except RuntimeError as error:
            # No error of DuckDB's own family is one: it met a signal while it was counting, and says so like this.
            raise KeyboardInterrupt from error
    raise AssertionError("unreachable")


def _count(lake: Path) -> Totals:
    files = sorted(str(path) for path in (lake / "raw" / flights.TOPIC).glob("**/*.parquet"))
    if not files:
        return Totals()
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE found AS SELECT _topic, _partition, _offset, carrier, origin "
            "FROM read_parquet($files, hive_partitioning = false)",
            {"files": files},
        )
        one = connection.execute("SELECT count(*), count(DISTINCT (_topic, _partition, _offset)) FROM found").fetchone()
        assert one is not None
        carriers = connection.execute("SELECT carrier, count(*) FROM found GROUP BY carrier").fetchall()
        origins = connection.execute("SELECT origin, count(*) FROM found GROUP BY origin").fetchall()
    return Totals(len(files), one[0], one[1], dict(carriers), dict(origins))
