"""What rows are expected to meet: conditions, counts and limits, without services."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.pipeline_text import GOOD, problems
from tidemark.errors import Blocked, ConfigurationError
from tidemark.model.expectations import (
    ExpectationCount,
    ExpectationOrder,
    RecordPlace,
    check_expectations,
    expectations_together,
)
from tidemark.pipeline.loader import load
from tidemark.transforms.expectations import Expectations

GIVEN = pa.schema([("amount", pa.int64()), ("flag", pa.bool_()), ("text", pa.string()), ("at", pa.int64())])


def rows(*made: tuple[Any, ...], deleted: Sequence[bool] = ()) -> pa.RecordBatch:
    """Rows of (amount, flag, text); offsets ascend, and partitions take turns."""
    count = len(made)
    columns: dict[str, pa.Array] = {
        "_topic": pa.array(["t"] * count),
        "_partition": pa.array([1 - at % 2 for at in range(count)], pa.int32()),
        "_offset": pa.array(range(count), pa.int64()),
        "_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        "_key": pa.array([b"k"] * count),
        "_manifest_id": pa.array([1] * count, pa.int64()),
    }
    if deleted:
        columns["_is_deleted"] = pa.array(deleted)
    values = [[row[at] for row in made] for at in range(3)]
    data = zip(("amount", "flag", "text"), values, (pa.int64(), pa.bool_(), pa.string()), strict=True)
    columns |= {name: pa.array(column, kind) for name, column, kind in data}
    return pa.RecordBatch.from_pydict({**columns, "at": pa.array([1] * count, pa.int64())})


FOUR = rows((1, True, "1"), (-1, False, "x"), (None, None, None), (5, True, "-7"))


@pytest.mark.parametrize(
    ("check", "unmet", "unknown"),
    [
        ("amount >= 0", [1, 2], 1),
        ("amount IS NULL OR amount >= 0", [1], 0),
        ("flag", [1, 2], 1),
        ("NOT flag", [0, 2, 3], 1),
        ("text::INT > 0", [1, 2, 3], 2),
        ("try_cast(text AS INT) > 0", [1, 2, 3], 2),
        ("amount >= 0 -- the rest is a comment", [1, 2], 1),
        ('"at" = 1', [], 0),
        ("true", [], 0),
        ("NULL::BOOLEAN", [0, 1, 2, 3], 4),
        ("_offset < 3", [3], 0),
        ("text LIKE '%''%'", [0, 1, 2, 3], 1),
    ],
)
def test_a_row_meets_a_condition_only_where_it_is_true(check: str, unmet: list[int], unknown: int) -> None:
    judged = Expectations([ExpectationOrder(check, check, dead_letter=True)], GIVEN).judge(FOUR)
    [count] = judged.counts
    assert (count.rows, count.unmet, count.unknown) == (4, len(unmet), unknown)
    assert [row for row, _ in judged.dead] == unmet


def test_conditions_are_counted_apart_however_many_there_are_and_the_first_unmet_is_the_reason() -> None:
    checks = ["flag", "amount >= 0", "text::INT > 0", "flag AND amount > 1"]
    orders = [ExpectationOrder(check, check, dead_letter=check != "flag") for check in checks]
    judged = Expectations(orders, GIVEN).judge(FOUR)
    assert [(count.name, count.unmet) for count in judged.counts] == [*zip(checks, [2, 2, 3, 3], strict=True)]
    assert judged.dead == ((0, "flag AND amount > 1"), (1, "amount >= 0"), (2, "amount >= 0"), (3, "text::INT > 0"))


def test_rows_that_are_deleted_are_not_asked() -> None:
    marked = rows((-1, None, None), (-1, None, None), (3, None, None), deleted=[True, False, False])
    judged = Expectations([ExpectationOrder("a", "amount >= 0", dead_letter=True)], GIVEN).judge(marked)
    assert [(count.rows, count.unmet) for count in judged.counts] == [(2, 1)]
    assert judged.dead == ((1, "a"),)
    assert Expectations([ExpectationOrder("a", "false")], GIVEN).judge(marked.slice(0, 1)).counts[0].rows == 0


def test_thousands_of_rows_that_cannot_be_evaluated_are_counted() -> None:
    many = rows(*[(1, True, "x" if at % 2 else "1") for at in range(10_000)])
    judged = Expectations([ExpectationOrder("number", "text::INT > 0", dead_letter=True)], GIVEN).judge(many)
    assert [(count.rows, count.unmet, count.unknown) for count in judged.counts] == [(10_000, 5_000, 5_000)]
    assert len(judged.dead) == 5_000


def test_the_lowest_places_are_the_examples_however_the_rows_are_cut() -> None:
    many = rows(*[(-1, True, "") for _ in range(40)])
    expectations = Expectations([ExpectationOrder("a", "amount >= 0")], GIVEN)
    whole = expectations.judge(many).counts
    assert whole[0].examples == (RecordPlace("t", 0, 1), RecordPlace("t", 0, 3), RecordPlace("t", 0, 5))
    for size in (1, 7, 39):
        cut = [count for at in range(0, 40, size) for count in expectations.judge(many.slice(at, size)).counts]
        assert expectations_together(reversed(cut)) == whole


REFUSED = {
    "amount > 0) OR (true": "syntax error",
    "amont > 0": 'did you mean "amount"?',
    "amount": "it is int64, and not true or false",
    "*": "and not true or false",
    "NULL": "the condition would be null",
    "error('x')": "the condition would be null",
    "count(*) > 1": "works on several rows",
    "(SELECT 1) = 1": "a subquery",
    "amount IN (SELECT 1)": "a subquery",
    "now() > '2024-01-01'::TIMESTAMPTZ": "gives another result each time",
    "random() > 0.5": "gives another result each time",
    "sum(amount) OVER () > 1": "a window function",
    "unnest([true])": "several rows",
    "amount > 0 AS y": "syntax error",
    "amount > 0, true": "has no name",
    "amount > 0 FROM batch WHERE true --": "syntax error",
    "true FROM batch; SELECT true": "2 statements",
    "1; DROP TABLE x": "syntax error",
    "true /*": "unterminated",
    "true\n) AS c0 FROM batch --": "syntax error",
}


@pytest.mark.parametrize(("check", "what"), REFUSED.items())
def test_what_is_no_condition_on_one_row_is_refused_by_its_name(check: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Expectations([ExpectationOrder("fine", "true"), ExpectationOrder("mine", check)], GIVEN)
    assert refused.value.what.startswith("mine: ")
    assert what in refused.value.what
    assert refused.value.next_step
    assert "AS met" not in refused.value.next_step


def count(name: str, rows: int, unmet: int) -> ExpectationCount:
    return ExpectationCount(name, f"{name} > 0", rows, unmet, 0, (RecordPlace("t", 0, 7),))


@pytest.mark.parametrize(
    ("at_most", "unmet", "blocks"),
    [(None, 1_000, False), (0, 0, False), (0, 1, True), (3, 3, False), (3, 4, True), ("0.5%", 5, False),
     ("0.5%", 6, True), ("100%", 1_000, False), ("0.01%", 1, False)],
)  # fmt: skip
def test_more_than_is_allowed_blocks(at_most: int | str | None, unmet: int, blocks: bool) -> None:
    """A share is rounded up: 0.01% of 1,000 rows allow one."""
    order = ExpectationOrder("amount", "amount > 0", at_most=at_most)
    if not blocks:
        check_expectations([order], [count("amount", 1_000, unmet)])
        return
    with pytest.raises(Blocked, match=f"{unmet:,} of 1,000 rows do not meet amount .* t-0 offset 7"):
        check_expectations([order], [count("amount", 1_000, unmet)])
    check_expectations([order], [count("amount", 1_000, unmet)], [order.question])
    other = ExpectationOrder("amount", "amount > 1", at_most=at_most)
    with pytest.raises(Blocked):
        check_expectations([other], [count("amount", 1_000, unmet)], [order.question])


def test_all_expectations_that_block_are_told_at_once() -> None:
    orders = [ExpectationOrder(name, f"{name} > 0", at_most=0) for name in ("a", "b", "c")]
    with pytest.raises(Blocked, match=r"do not meet a \(.*do not meet c \(") as blocked:
        check_expectations(orders, [count("a", 9, 1), count("b", 9, 0), count("c", 9, 2)])
    assert "do not meet b" not in str(blocked.value)


def told(tmp_path: Path, expect: str) -> list[str]:
    path = tmp_path / "flights.yaml"
    path.write_text(f"{GOOD}expect:\n{expect}")
    return problems(path)


@pytest.mark.parametrize(
    ("expect", "what"),
    [
        ("- amount >= 0\n", '17: expect[0].check: does not fit: there is no column amount'),
        ("- id >= 0\n- id >= 0\n", '18: expect[1]: is the second expectation called "id >= 0"'),
        ("- id >= 0\n- {name: id >= 0, check: late}\n", '18: expect[1]: is the second expectation called "id >= 0"'),
        ("- {check: late, at_most: 101%}\n", "17: expect[0].at_most: "),
        ("- {check: late, otherwise: drop}\n", "17: expect[0].otherwise: "),
        ("- {name: x}\n", "expect[0].check: "),
        ("- ''\n", "17: expect[0].check: "),
        (f"- {{name: {'x' * 101}, check: late}}\n", "17: expect[0].name: must have at most 100 characters"),
        ('- {name: "a\\nb", check: late}\n', "17: expect[0].name: must be one line of characters"),
        (f"- id > 0 AND gate <> '{'x' * 100}'\n", "17: expect[0]: needs a name"),
        ("- (SELECT true)\n", "17: expect[0].check: does not fit: it has a subquery"),
        ("- gate\n", "17: expect[0].check: does not fit: it is string, and not true or false"),
        ("".join(f"- id > {number}\n" for number in range(201)), "217: expect[200]: is one too many"),
    ],
)  # fmt: skip
def test_a_wrong_expectation_is_refused_with_its_line(tmp_path: Path, expect: str, what: str) -> None:
    [line] = told(tmp_path, expect)
    assert line.startswith(f"flights.yaml:{what}") or what in line


def test_the_text_of_a_condition_is_an_expectation_and_only_dead_letters_decide_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "flights.yaml"
    path.write_text(GOOD)
    plain = load(path, {})
    path.write_text(f"{GOOD}expect:\n- id >= 0\n- {{name: known, check: gate IS NOT NULL, at_most: 0.5%}}\n")
    counting = load(path, {})
    assert counting.expectations() == (
        ExpectationOrder("id >= 0", "id >= 0"),
        ExpectationOrder("known", "gate IS NOT NULL", at_most="0.5%"),
    )
    path.write_text(f"{GOOD}expect:\n- {{check: id >= 0, otherwise: dead_letter}}\n")
    assert plain.fingerprint() == counting.fingerprint() != load(path, {}).fingerprint()
