"""Orders for `spark-submit` in a folder of their own: where they lie, and what the job leaves beside them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tidemark.environment import Environment
from tidemark.errors import AccessDenied, TidemarkError, Unavailable, WorkFailed
from tidemark.model.order import Order, SourceOrder
from tidemark.pipeline.settings import Engine, Spark
from tidemark.sources.kafka.spark import open_reader
from tidemark.spark import masters
from tidemark.spark.cluster import APPLICATION, spark_submit
from tidemark.spark.failures import failure_of
from tidemark.spark.job import failure
from tidemark.spark.orders import FAILURE, ORDER, RECEIPT, read_receipt, write_order
from tidemark.spark.submitted import main
from tidemark.storage.local import LocalStore


def order(attempt: int) -> Order:
    return Order("demo", 7, attempt, (), SourceOrder("kafka", {}), {}, {}, "fail", ())


@pytest.fixture
def orders(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def test_an_attempt_removes_the_orders_of_lower_ones_and_never_that_of_a_newer_one(orders: LocalStore) -> None:
    first, third = write_order(order(1), orders), write_order(order(3), orders)
    assert first.get(ORDER) is None
    woken = write_order(order(2), orders)
    assert Path(third.address).name == ORDER
    assert Order.from_json(Path(third.address).read_text()) == order(3)
    write_order(order(4), orders)
    assert woken.get(ORDER) is None
    assert third.get(ORDER) is None


def test_schedule_15_a_receipt_of_an_older_attempt_with_the_same_number_is_not_taken(orders: LocalStore) -> None:
    before = write_order(order(1), orders)
    before.put(RECEIPT, b"{}")
    before.put(FAILURE, b"{}")
    again = write_order(order(1), orders)
    before.put(RECEIPT, b"{}")  # the older attempt still works, and writes a receipt now
    with pytest.raises(WorkFailed, match="Spark ended without a receipt"):
        read_receipt(again, order(1))


def test_nothing_is_left_of_an_order_that_was_removed(orders: LocalStore, tmp_path: Path) -> None:
    folder = write_order(order(1), orders)
    folder.put(RECEIPT, b"{}")
    folder.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said_by_spark", "kind", "what"),
    [
        ("Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out", Unavailable, "does not answer Spark"),
        ("Caused by: java.util.concurrent.TimeoutException: Cannot fetch record for offset 3 in 120000 milliseconds",
         Unavailable, "does not answer Spark"),
        ("Caused by: java.util.concurrent.TimeoutException: Futures timed out", WorkFailed, "Spark failed"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", AccessDenied, "does not let"),
    ],
)  # fmt: skip
def test_what_spark_says_of_kafka_is_told_as_kafkas(said_by_spark: str, kind: type[TidemarkError], what: str) -> None:
    options = {"connection": None, "options": {}, "bootstrap_servers": "kafka:9092"}
    of_kafka = replace(order(1), source=SourceOrder("kafka", options))
    told = failure(of_kafka, PySparkException(f"Job aborted.\n{said_by_spark}"), open_reader(of_kafka), "a log")
    assert type(told) is kind
    assert what in told.what
    assert "tidemark retry demo" in told.next_step
    assert ("bootstrap_servers" in told.context) == (kind is Unavailable)


def test_a_spark_that_was_killed_is_named_and_not_what_its_python_said_then(orders: LocalStore) -> None:
    file = write_order(order(1), orders)
    file.put(FAILURE, json.dumps(failure_of(WorkFailed("Spark failed: Connection refused"))).encode())
    with pytest.raises(WorkFailed, match=r"Connection refused"):
        read_receipt(file, order(1), 1)
    with pytest.raises(WorkFailed) as killed:
        read_receipt(file, order(1), -9)
    assert killed.value.what == "Spark was killed by signal 9 (SIGKILL), often because the machine had no memory left"
    assert "dmesg -T | grep -i 'killed process'" in killed.value.next_step
    assert "tidemark retry demo" in killed.value.next_step
    assert "log" not in killed.value.next_step, "it had no time to write one"


def test_a_spark_that_ends_without_a_word_is_named_by_its_exit_status(orders: LocalStore) -> None:
    file = write_order(order(1), orders)
    with pytest.raises(WorkFailed, match="Spark ended with exit status 3"):
        read_receipt(file, order(1), 3)


def test_orders_and_receipts_of_another_version_are_named(orders: LocalStore) -> None:
    folder = write_order(order(1), orders)
    folder.put(ORDER, b'{"ranges": []}')
    assert main([folder.address]) == 1
    with pytest.raises(WorkFailed, match=r"cannot read the order of a driver \(KeyError: 'before'\)"):
        read_receipt(folder, order(1))
    folder.put(RECEIPT, b'{"manifest_id": 7}')
    with pytest.raises(WorkFailed, match=r"cannot read the receipt of a driver \(KeyError: 'attempt'\)"):
        read_receipt(folder, order(1))


def test_a_driver_that_starts_when_its_order_is_gone_says_so_and_leaves_nothing(
    orders: LocalStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_order(order(1), orders)
    folder.remove()
    assert main([folder.address]) == 1
    assert capsys.readouterr().err == f"there is no order {folder.address}: its attempt has ended\n"
    assert list(tmp_path.iterdir()) == []


def test_kubernetes_finds_application_and_jars_in_its_image_or_in_a_place_for_uploads(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masters, "problem_with_address", lambda *_: None)  # no cluster is asked here
    environment = Environment(None, tmp_path, tmp_path, spark_jars)

    def words_of(**conf: str) -> tuple[str, dict[str, str]]:
        spark = Spark(engine=Engine.CLUSTER, orders=str(tmp_path), conf=conf)
        words = spark_submit("k8s://https://there:6443", environment, spark)("tidemark", ["ADDRESS"])
        given = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "--conf"]
        assert words[-1] == "ADDRESS"
        return words[-2], {name: value for name, _, value in given}

    application, conf = words_of()
    assert application == f"local://{APPLICATION}"
    assert all(jar.startswith("local:///") for jar in conf["spark.jars"].split(","))
    assert "spark.submit.pyFiles" not in conf
    application, conf = words_of(**{"spark.kubernetes.file.upload.path": "s3a://uploads"})
    assert application == str(APPLICATION)
    assert all(jar.startswith("/") for jar in conf["spark.jars"].split(","))
    assert Path(conf["spark.submit.pyFiles"]).is_file()
