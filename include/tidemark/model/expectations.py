"""The conditions that a pipeline expects its rows to meet, and the count of rows that do not meet them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from tidemark.errors import THEN_RETRY_BLOCKED, Blocked
from tidemark.model.reasons import DeadLetterLimit

EXAMPLES = 3


@dataclass(frozen=True)
class ExpectationOrder:
    """A condition in SQL. At most ``at_most`` rows of a manifest may fail it: a number or a share; None: any number."""

    name: str
    check: str
    dead_letter: bool = False
    at_most: int | str | None = None

    @property
    def question(self) -> str:
        """Return the SHA-256 of name and condition. ``accept`` stores it for a manifest; if either changes, the new
        condition must be accepted again."""
        return sha256(f"{self.name}\n{self.check}".encode()).hexdigest()


@dataclass(frozen=True, order=True)
class RecordPlace:
    """The place of a record in its source."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


@dataclass(frozen=True)
class ExpectationCount:
    """The count for one condition: ``unmet`` of ``rows`` do not meet it. For ``unknown`` of these it is null, or fails.

    ``examples`` are the records at the lowest places, at most three. They do not depend on how tasks share the records.
    """

    name: str
    check: str
    rows: int
    unmet: int
    unknown: int
    examples: tuple[RecordPlace, ...]

    def plus(self, other: "ExpectationCount") -> "ExpectationCount":
        return replace(
            self,
            rows=self.rows + other.rows,
            unmet=self.unmet + other.unmet,
            unknown=self.unknown + other.unknown,
            examples=tuple(sorted({*self.examples, *other.examples})[:EXAMPLES]),
        )

    @property
    def places(self) -> str:
        return ", ".join(map(str, self.examples))


def expectations_together(counts: Iterable[ExpectationCount]) -> tuple[ExpectationCount, ...]:
    """Return the counts added up by condition, in the order in which the conditions first appear."""
    together: dict[str, ExpectationCount] = {}
    for count in counts:
        together[count.name] = together[count.name].plus(count) if count.name in together else count
    return tuple(together.values())


def expectation_from(raw: Mapping[str, Any]) -> ExpectationCount:
    return ExpectationCount(**{**raw, "examples": tuple(RecordPlace(**place) for place in raw["examples"])})


def beyond_limit(order: ExpectationOrder, count: ExpectationCount) -> bool:
    """Return whether more rows fail a condition than it allows; a share of the rows is rounded up."""
    allowed = DeadLetterLimit(order.at_most).allowed(count.rows)
    return allowed is not None and count.unmet > allowed


def check_expectations(
    orders: Iterable[ExpectationOrder], counts: Iterable[ExpectationCount], accepted: Iterable[str] = ()
) -> None:
    """Raise ``Blocked`` if more rows of a manifest fail a condition than it allows; it names all such conditions.

    ``accepted``: the ``question`` of each condition that you have accepted for this manifest.
    """
    by_name = {count.name: count for count in counts}
    wrong = []
    for order in orders:
        count = by_name.get(order.name)
        if count is None or order.question in accepted or not beyond_limit(order, count):
            continue
        shown = order.name if order.name == order.check else f"{order.name} ({order.check})"
        unknown = f"; for {count.unknown:,} of them it is null or fails" if count.unknown else ""
        wrong.append(
            f"{count.unmet:,} of {count.rows:,} rows do not meet {shown}, and at_most is {order.at_most}{unknown}: "
            f"{count.places}"
        )
    if wrong:
        raise Blocked(
            "; ".join(wrong),
            next_step="nothing of the manifest is published. Look at the rows: tidemark peek {pipeline}; then "
            "correct the condition or the rows in the pipeline file, or publish them as they are: tidemark accept "
            "expectation {pipeline} --manifest {manifest} --why TEXT" + THEN_RETRY_BLOCKED,
        )
