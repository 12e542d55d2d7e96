"""Where an attempt's order lies for `spark-submit` when no sink has a local folder."""

from pathlib import Path

from tidemark.order import Order, SourceOrder
from tidemark.spark.submitted import ORDER, write_order


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
