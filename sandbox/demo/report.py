"""The output of the demo: tables and lines. Colour and a spinner only on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from sandbox.demo.lake_counts import LakeCounts
from sandbox.services.clock import Clock

Moment = tuple[str, float, LakeCounts]


class Report:
    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = 120

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    @contextmanager
    def doing(self, text: str) -> Iterator[None]:
        """Show a spinner while the block runs; without a terminal, print one line."""
        if not self.console.is_terminal:
            self.say(f"{text} ..")
            yield
            return
        with self.console.status(text):
            yield

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; columns of numbers are aligned to the right."""
        numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
        table = Table(title=title, title_justify="left", title_style="bold")
        for name, right in zip(columns, numeric, strict=True):
            table.add_column(name, justify="right" if right else "left", no_wrap=right)
        for row in rows:
            table.add_row(*(_text(value) for value in row))
        self.console.print()
        self.console.print(table)

    def manifests(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        rows = []
        for manifest in manifests:
            ranges = ", ".join(f"{part['partition']}:[{part['start']}, {part['end']})" for part in manifest["ranges"])
            counts = manifest["counts"] or {}
            numbers = [counts.get(name, 0) for name in ("read", "written", "dead_lettered")]
            identity = [manifest["id"], ranges, manifest["state"], manifest["attempt"]]
            rows.append([*identity, *numbers, len(manifest["objects"])])
        columns = ["id", "partition:[start, end)", "state", "attempt", "read", "written", "dead", "files"]
        self.table("Manifests", columns, rows)

    def moments(self, moments: Sequence[Moment]) -> None:
        """Print what the lake held before, during and after the run."""
        rows = [
            [
                name,
                f"{second:.0f} s",
                now.files,
                now.rows,
                now.distinct,
                now.carriers.get("UA", 0),
                now.origins.get("EWR", 0),
            ]
            for name, second, now in moments
        ]
        columns = ["when", "at", "files", "rows", "distinct", "UA", "EWR"]
        self.table("The lake, counted by DuckDB over its files", columns, rows)

    def checks(self, counts: LakeCounts) -> None:
        """Print every total that was counted, beside the published one."""
        rows = [
            [name, counted, published, "right" if counted == published else "WRONG"]
            for name, counted, published in counts.checks
        ]
        self.table("Totals from the files, against the published ones", ["what", "found", "published", ""], rows)

    def times(self, before: Mapping[str, float], clock: Clock) -> None:
        """Print the times of the set-up's steps and of this run's steps, which overlap."""
        rows: list[list[object]] = [["set-up: " + name, "", f"{seconds:.1f} s"] for name, seconds in before.items()]
        rows += [[step.name, f"{step.start:.1f} s", f"{step.seconds:.1f} s"] for step in clock.steps]
        rows.append(["all", "", f"{sum(before.values()) + clock.elapsed:.1f} s"])
        self.table("Where the time went", ["step", "began", "took"], rows)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
