"""What the demo prints: tables and lines; colour and a spinner only on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from sandbox.demo.totals import Totals
from sandbox.services.clock import Clock

Moment = tuple[str, float, Totals]


class Report:
    """One run's output, in the order in which things happen."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = 120

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, markup=False)

    @contextmanager
    def doing(self, text: str) -> Iterator[None]:
        """A spinner while the block runs, or just the line where there is no terminal."""
        if not self.console.is_terminal:
            self.say(f"{text} ..")
            yield
            return
        with self.console.status(text):
            yield

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table; numbers are set to the right and get thousands' marks."""
        numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
        table = Table(title=title, title_justify="left", title_style="bold")
        for name, right in zip(columns, numeric, strict=True):
            table.add_column(name, justify="right" if right else "left", no_wrap=right)
        for row in rows:
            table.add_row(*(_text(value) for value in row))
        self.console.print()
        self.console.print(table)

    def manifests(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Manifests with ranges, states, counts and files; then the sums."""
        rows = []
        for one in manifests:
            ranges = ", ".join(f"{each['partition']}:[{each['start']}, {each['end']})" for each in one["ranges"])
            counts = one["counts"] or {}
            numbers = [counts.get(name, 0) for name in ("read", "written", "dead_lettered")]
            rows.append([one["id"], ranges, one["state"], one["attempt"], *numbers, len(one["objects"])])
        columns = ["id", "partition:[start, end)", "state", "attempt", "read", "written", "dead", "files"]
        self.table("Manifests", columns, rows)

    def moments(self, moments: Sequence[Moment]) -> None:
        """What the lake held before, during and after the run."""
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

    def checks(self, totals: Totals) -> None:
        """Found against published, one line for each total."""
        rows = [[what, found, right, "right" if found == right else "WRONG"] for what, found, right in totals.checks]
        self.table("Totals from the files, against the published ones", ["what", "found", "published", ""], rows)

    def times(self, before: Mapping[str, float], clock: Clock) -> None:
        """Where the time went: the set-up's steps, then those of this run, which overlap."""
        rows: list[list[object]] = [["set-up: " + name, "", f"{seconds:.1f} s"] for name, seconds in before.items()]
        rows += [[step.name, f"{step.start:.1f} s", f"{step.seconds:.1f} s"] for step in clock.steps]
        rows.append(["all", "", f"{sum(before.values()) + clock.elapsed:.1f} s"])
        self.table("Where the time went", ["step", "began", "took"], rows)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
