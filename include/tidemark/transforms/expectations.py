"""The conditions that the rows of a pipeline should meet: conditions in SQL, all evaluated on a batch in one query.

A row meets a condition only if the condition is true for it. If it is null, or cannot be evaluated (a failed cast), the
row does not meet it, and is also counted separately. Rows that mark their key as deleted have no data, so they are left
out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import THEN_RETRY, ConfigurationError, WorkFailed
from tidemark.model.expectations import EXAMPLES, ExpectationCount, ExpectationOrder, RecordPlace
from tidemark.model.positions import positions
from tidemark.model.reasons import without_values
from tidemark.transforms.query import OF_ROWS, Query, as_view
from tidemark.transforms.statement import connect

_CONDITION = "write a condition, such as amount >= 0; a column with a name of SQL goes into double quotes"
_PLACES = ("_topic", "_partition", "_offset")


class WrongExpectation(ConfigurationError):
    """The condition at ``position`` does not fit the columns; ``wrong`` says why, without the condition's name."""

    def __init__(self, position: int, name: str, wrong: ConfigurationError) -> None:
        super().__init__(f"{name}: {wrong.what}", next_step=wrong.next_step)
        self.position, self.wrong = position, wrong


@dataclass(frozen=True)
class Judged:
    """The result for a batch. ``dead`` has (row, name) for each row that becomes a dead letter, with the first
    condition that it does not meet.
    """

    counts: tuple[ExpectationCount, ...]
    dead: tuple[tuple[int, str], ...]


class Expectations:
    """The conditions of a task. It is opened once per task.

    Raises ``WrongExpectation`` for the first condition that does not fit the data columns ``given``.
    """

    def __init__(self, orders: Sequence[ExpectationOrder], given: pa.Schema) -> None:
        self._orders = tuple(orders)
        self._connection = connect()
        for position, order in enumerate(self._orders):
            try:
                self._check(order, given)
            except ConfigurationError as wrong:
                raise WrongExpectation(position, order.name, wrong) from wrong

    def _check(self, order: ExpectationOrder, given: pa.Schema) -> None:
        """Raise unless the condition is complete by itself, without parentheses around it (``a) OR (true`` is refused),
        and is true or false.
        """
        query = Query(f"SELECT {order.check}\n AS met FROM batch", connection=self._connection)  # noqa: S608 - checked as parsed
        try:
            kinds = query.schema(given).types
        except ConfigurationError as wrong:
            own_words = any(
                word in wrong.next_step for word in ("SELECT", " AS met")
            )  # words of our query, not of the file
            raise ConfigurationError(
                wrong.what.replace("column met", "the condition"),
                next_step=_CONDITION if own_words else wrong.next_step,
            ) from wrong
        if kinds != [pa.bool_()]:
            raise ConfigurationError(
                f"it is {', '.join(map(str, kinds))}, and not true or false",
                next_step=_CONDITION,
            )

    def judge(self, rows: pa.RecordBatch) -> Judged:
        """Return which conditions the rows do not meet; ``rows`` are as sinks get them."""
        asked, at = rows, positions(rows.num_rows)
        if "_is_deleted" in rows.schema.names:
            at = at.filter(pc.invert(rows.column("_is_deleted")))
            asked = rows.take(at)
        counts = []
        dead: dict[int, str] = {}
        for order, met in zip(self._orders, self._met(asked), strict=True):
            unmet = pc.indices_nonzero(pc.invert(pc.fill_null(met, False)))
            counts.append(
                ExpectationCount(
                    order.name, order.check, asked.num_rows, len(unmet), met.null_count, _lowest(asked, unmet)
                )
            )
            for row in at.take(unmet).to_pylist() if order.dead_letter else ():
                dead.setdefault(row, order.name)
        return Judged(tuple(counts), tuple(sorted(dead.items())))

    def _met(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return, for each condition, its value for each row: true, false, or null if it is null or cannot be
        evaluated.
        """
        try:
            return self._answers(rows, "(\n{}\n)")
        except OF_ROWS:
            return self._answers(rows, "TRY((\n{}\n))")

    def _answers(self, rows: pa.RecordBatch, form: str) -> list[pa.Array]:
        columns = ", ".join(f"{form.format(order.check)} AS c{at}" for at, order in enumerate(self._orders))
        try:
            with as_view(self._connection, pa.Table.from_batches([rows])):
                made = self._connection.sql(f"SELECT {columns} FROM batch").to_arrow_table()  # noqa: S608
        except OF_ROWS:
            raise
        except duckdb.Error as error:
            raise WorkFailed(
                f"DuckDB failed: expect: {without_values(str(error))}",
                next_step="nothing is published" + THEN_RETRY,
            ) from error
        return [pa.concat_arrays([pa.array([], pa.bool_()), *column.chunks]) for column in made.columns]


def _lowest(rows: pa.RecordBatch, at: pa.Array) -> tuple[RecordPlace, ...]:
    """Return the records at the lowest places. A batch may have several partitions, in any order."""
    places = pa.Table.from_batches([rows.select(_PLACES).take(at)])
    places = places.group_by(list(_PLACES), use_threads=False).aggregate([])
    order = pc.sort_indices(places, [(name, "ascending") for name in _PLACES])
    return tuple(RecordPlace(*place.values()) for place in places.take(order[:EXAMPLES]).to_pylist())
