"""The job that ``spark-submit`` starts: reads an order file, and writes a receipt or a failure beside it."""

import json
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.errors import TidemarkError, WorkFailed
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.paths import staging_folder
from tidemark.spark import ended
from tidemark.spark.failures import failure_from, failure_of
from tidemark.spark.job import ABOVE, stage
from tidemark.spark.jobs import report_jobs, tag_of
from tidemark.storage.local import LocalStore

ORDER, RECEIPT, FAILURE = "order.json", "receipt.json", "failure.json"


def write_order(order: Order, orders: Path, shared: str | None = None) -> Path:
    """Write the order into the attempt's own folder and return the file.

    The folder lies in ``shared`` (a folder of one sink alone), or without it in ``orders``, which belongs to one
    manifest database alone. There, first remove the folders of attempts up to this one, because no sink does. A
    restored database may reuse an attempt number: the receipt of the older attempt must not be taken for this one's.
    """
    if shared is None:
        for attempt in range(1, order.attempt + 1):
            shutil.rmtree(orders / staging_folder(order.manifest_id, attempt), ignore_errors=True)
    folder = Path(shared or orders, order.staging).absolute()
    LocalStore(str(folder)).put(ORDER, order.to_json().encode())
    return folder / ORDER


def read_receipt(file: Path, order: Order, status: int = 0) -> Receipt:
    """Return the receipt that the job wrote beside its order. Raises the error that the job wrote, or an error if it
    was killed.

    ``status`` is the exit status of ``spark-submit``, negative for the signal that killed it. An error that the job
    wrote after its JVM was killed is ignored: it only says that the JVM did not answer.
    """
    folder = LocalStore(str(file.parent))
    failure, receipt = folder.get(FAILURE), folder.get(RECEIPT)
    if failure is not None and status >= 0:
        raise failure_from(json.loads(failure))
    if receipt is None:
        raise WorkFailed(
            ended.describe_end(status) if status else "Spark ended without a receipt",
            next_step=f"nothing is published; {ended.advice(status) or ABOVE}; a retry starts a new attempt: "
            f"tidemark retry {order.pipeline_name} --manifest {order.manifest_id}",
            pipeline=order.pipeline_name,
            manifest=order.manifest_id,
            attempt=order.attempt,
        )
    return Receipt.from_json(receipt.decode())


def remove_order(file: Path) -> None:
    """Remove the order, the receipt and the failure, and the folder if it is then empty."""
    for name in (ORDER, RECEIPT, FAILURE):
        file.with_name(name).unlink(missing_ok=True)
    with suppress(OSError):
        file.parent.rmdir()


def main(arguments: list[str]) -> int:
    """Do one order. Exit status 1, with a failure file, if it cannot be done; 2 on wrong use."""
    if len(arguments) != 1:
        print("usage: spark-submit application.py ORDER.json", file=sys.stderr)
        return 2
    file = Path(arguments[0])
    order = Order.from_json(file.read_text())
    folder = LocalStore(str(file.parent))
    session = SparkSession.builder.getOrCreate()
    try:
        with report_jobs(session, tag_of(order.manifest_id, order.attempt), partial(print, flush=True)):
            receipt = stage(session, order)
    except TidemarkError as error:
        folder.put(FAILURE, json.dumps(failure_of(error)).encode())
        print(error, file=sys.stderr)
        return 1
    finally:
        session.stop()
    folder.put(RECEIPT, receipt.to_json().encode())
    return 0
