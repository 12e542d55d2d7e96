"""Where an attempt's order lies for `spark-submit` when no sink has a local folder."""

from pathlib import Path

import pytest

from tidemark.errors import WorkFailed
from tidemark.order import Order, SourceOrder
from tidemark.spark.submitted import FAILURE, ORDER, RECEIPT, read_receipt, write_order


def order(attempt: int) -> Order:
    return Order("demo", 7, attempt, (), SourceOrder("kafka", {}), {}, {}, "fail", ())


def test_an_attempt_removes_the_orders_of_lower_ones_and_never_that_of_a_newer_one(tmp_path: Path) -> None:
    first, third = write_order(order(1), tmp_path), write_order(order(3), tmp_path)
    assert not first.exists()
    woken = write_order(order(2), tmp_path)
    assert (woken.name, third.name) == (ORDER, ORDER)
    assert Order.from_json(third.read_text()) == order(3)
    write_order(order(4), tmp_path)
    assert not woken.exists()
    assert not third.exists()


def test_schedule_15_a_receipt_of_an_older_attempt_with_the_same_number_is_not_taken(tmp_path: Path) -> None:
    before = write_order(order(1), tmp_path)
    before.with_name(RECEIPT).write_text("{}")
    before.with_name(FAILURE).write_text("{}")
    again = write_order(order(1), tmp_path)
    assert again == before
    with pytest.raises(WorkFailed, match="Spark ended without a receipt"):
        read_receipt(again, order(1))
