"""``expect``: conditions in SQL that the rows of a pipeline should meet."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator

from tidemark.config.base import DeadLetters, Section, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.model.expectations import ExpectationOrder

if TYPE_CHECKING:
    import pyarrow as pa

MOST_EXPECTATIONS = 200
LONGEST_NAME = 100


class Otherwise(StrEnum):
    """The treatment of a row that does not meet a condition."""

    COUNT = "count"
    DEAD_LETTER = "dead_letter"


class Expectation(Section):
    """A condition that each row should meet. A condition without other keys may be written as text alone."""

    check: str = Field(
        min_length=1,
        description="A condition in SQL on one row, met where it is true, not where it is null.",
        examples=["amount >= 0"],
    )
    name: str = Field(
        default="",
        max_length=LONGEST_NAME,
        description="Its name in counts and errors. Without it, the condition.",
    )
    otherwise: Otherwise = Field(
        default=Otherwise.COUNT,
        description="A row that does not meet it is counted and published, or a dead letter.",
    )
    at_most: DeadLetters | None = Field(
        default=None,
        description="Rows of one manifest that may not meet it; a share is of the rows asked, rounded up. With more "
        "the manifest is blocked. `null`: any number.",
        examples=["0.5%"],
    )

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        return {"check": value} if isinstance(value, str) else value

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable():  # the name appears in tables, labels of metrics and dead letters
            raise wrong("must be one line of characters that can be printed")
        return name

    @property
    def shown(self) -> str:
        return self.name or " ".join(self.check.split())

    def order(self) -> ExpectationOrder:
        return ExpectationOrder(self.shown, self.check, self.otherwise is Otherwise.DEAD_LETTER, self.at_most)


def check_expectations_of_file(expect: Sequence[Expectation], rows: RowSettings | None) -> None:
    """Raise for the first expectation that is wrong. ``rows`` is None while only a schema registry knows the
    columns.
    """
    if len(expect) > MOST_EXPECTATIONS:
        raise wrong_at(MOST_EXPECTATIONS, f"is one too many: there may be {MOST_EXPECTATIONS}")
    names: set[str] = set()
    for index, each in enumerate(expect):
        if not each.name and len(each.shown) > LONGEST_NAME:
            raise wrong_at(index, f"needs a name, since its condition is longer than {LONGEST_NAME} characters: "
                           "write {name: .., check: ..}")  # fmt: skip
        if each.shown in names:
            raise wrong_at(index, f'is the second expectation called "{each.shown}": give it a name of its own')
        names.add(each.shown)
    if rows is not None:
        _check_conditions(expect, rows.arrow_schema())


def _check_conditions(expect: Sequence[Expectation], columns: "pa.Schema") -> None:
    from tidemark.transforms.expectations import Expectations, WrongExpectation  # needs DuckDB

    try:
        Expectations([each.order() for each in expect], columns)
    except WrongExpectation as problem:
        hint = f"; {problem.next_step}" if problem.next_step else ""
        raise wrong_at((problem.position, "check"), f"does not fit: {problem.wrong.what}{hint}") from None
