"""The job as ``spark-submit`` starts it: an order file in, a receipt (or a failure) beside it out."""

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.errors import TidemarkError, WorkFailed
from tidemark.order import Order
from tidemark.paths import staging_folder
from tidemark.receipt import Receipt
from tidemark.spark.job import failure_from, failure_of, stage
from tidemark.storage.local import LocalStore

ORDER, RECEIPT, FAILURE = "order.json", "receipt.json", "failure.json"


def write_order(order: Order, home: Path, shared: str | None = None) -> Path:
    """Put the order into a folder of this attempt alone and return its file.

    It is the attempt's staging below ``shared``, a folder of a sink, or without one below ``home``; there the folders
    of the manifest's lower attempts, which nobody else would find, are removed.
    """
    if shared is None:
        for lower in range(1, order.attempt):
            shutil.rmtree(home / "_orders" / staging_folder(order.manifest_id, lower), ignore_errors=True)
    folder = Path(shared or home / "_orders", order.staging).absolute()
    LocalStore(str(folder)).put(ORDER, order.to_json().encode())
    return folder / ORDER


def read_receipt(file: Path, order: Order) -> Receipt:
    """What the job left beside its order; raises the error it left instead."""
    beside = LocalStore(str(file.parent))
    failure = beside.get(FAILURE)
    if failure is not None:
        raise failure_from(json.loads(failure))
    receipt = beside.get(RECEIPT)
    if receipt is None:
        raise WorkFailed(
            "Spark ended without a receipt",
            next_step="its log says why; nothing is published, a retry starts afresh",
            pipeline=order.pipeline,
            manifest=order.manifest_id,
            attempt=order.attempt,
        )
    return Receipt.from_json(receipt.decode())


def remove_order(file: Path) -> None:
    """Remove the order and what the job left beside it, and the folder when it held nothing else."""
    for name in (ORDER, RECEIPT, FAILURE):
        file.with_name(name).unlink(missing_ok=True)
    with suppress(OSError):
        file.parent.rmdir()


def main(arguments: list[str]) -> int:
    """Do one order; exit status 1 with a failure file when it cannot be done, 2 on wrong use."""
    if len(arguments) != 1:
        print("usage: spark-submit application.py ORDER.json", file=sys.stderr)
        return 2
    file = Path(arguments[0])
    order = Order.from_json(file.read_text())
    beside = LocalStore(str(file.parent))
    session = SparkSession.builder.getOrCreate()
    try:
        receipt = stage(session, order)
    except TidemarkError as error:
        beside.put(FAILURE, json.dumps(failure_of(error)).encode())
        print(error, file=sys.stderr)
        return 1
    finally:
        session.stop()
    beside.put(RECEIPT, receipt.to_json().encode())
    return 0
