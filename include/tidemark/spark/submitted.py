"""The job as ``spark-submit`` starts it: an order file in, a receipt (or a failure) beside it out."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.errors import TidemarkError, WorkFailed
from tidemark.model import Order, Receipt
from tidemark.objectstore import open_store
from tidemark.spark.job import failure_from, failure_of, stage

ORDER, RECEIPT, FAILURE = "order.json", "receipt.json", "failure.json"


def write_order(order: Order) -> str:
    """Put the order into the attempt's staging folder, below the root of its first sink, and return its path."""
    root = order.sinks[0].options["root"]
    key = f"{order.staging}/{ORDER}"
    open_store(root).put(key, order.to_json().encode())
    return str(Path(root, key))


def read_receipt(order: Order) -> Receipt:
    """What the job left; raises the error it left instead."""
    store = open_store(order.sinks[0].options["root"])
    failure = store.get(f"{order.staging}/{FAILURE}")
    if failure is not None:
        raise failure_from(json.loads(failure))
    receipt = store.get(f"{order.staging}/{RECEIPT}")
    if receipt is None:
        raise WorkFailed(
            "Spark ended without a receipt",
            next_step="its log says why; nothing is published, a retry starts afresh",
            pipeline=order.pipeline,
            manifest=order.manifest_id,
            attempt=order.attempt,
        )
    return Receipt.from_json(receipt.decode())


def main(arguments: list[str]) -> int:
    """Do one order; exit status 1 with a failure file when it cannot be done, 2 on wrong use."""
    if len(arguments) != 1:
        print("usage: process_manifest.py ORDER.json", file=sys.stderr)
        return 2
    order = Order.from_json(Path(arguments[0]).read_text())
    store = open_store(order.sinks[0].options["root"])
    session = SparkSession.builder.getOrCreate()
    try:
        receipt = stage(session, order)
    except TidemarkError as error:
        store.put(f"{order.staging}/{FAILURE}", json.dumps(failure_of(error)).encode())
        print(error, file=sys.stderr)
        return 1
    finally:
        session.stop()
    store.put(f"{order.staging}/{RECEIPT}", receipt.to_json().encode())
    return 0
