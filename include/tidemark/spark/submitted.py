"""The application for ``spark-submit``: reads an order, and writes a receipt or a failure beside it, in any store.

A driver on a cluster may be submitted twice, or wake when its attempt has ended. Its tasks stage under names of their
own (``job.py``), so every receipt is whole, and the attempt publishes the files of the one that it has read. When the
order is removed, the driver ends its jobs and writes nothing more. While it works, it writes its progress beside the
order: nobody may be waiting for its process.
"""

import json
import sys
import threading
from contextlib import suppress
from functools import partial

from pyspark import SparkConf
from pyspark.sql import SparkSession

from tidemark.errors import TidemarkError, Unavailable
from tidemark.model.order import Order
from tidemark.model.receipt import MALFORMED
from tidemark.spark.asked_executors import ask_executors
from tidemark.spark.failures import failure_of
from tidemark.spark.job import stage
from tidemark.spark.jobs import beside, end_job, report_jobs, tag_of
from tidemark.spark.orders import (
    ANSWERS,
    FAILURE,
    ORDER,
    PROGRESS,
    QUESTIONS,
    RECEIPT,
    OrderFolder,
    folder_of,
    of_other_version,
)
from tidemark.spark.probe import Questions
from tidemark.spark.session import forget_pandas, spark_configuration

LOOK_S = 5.0  # between two looks of a driver for its order
USAGE = "usage: spark-submit application.py ADDRESS/order.json [CONNECTION]"


def main(arguments: list[str]) -> int:
    """Do one order. Exit status 1, with a failure file, if it cannot be done; 2 on wrong use.

    ``CONNECTION`` is the id of the connection to the store of the order, which the environment has.
    """
    if not 1 <= len(arguments) <= 2:
        print(USAGE, file=sys.stderr)
        return 2
    folder = folder_of(arguments[0], connection=arguments[1] if arguments[1:] else None)
    content, questions = folder.get(ORDER), folder.get(QUESTIONS)
    if content is None:
        print(f"there is no order {arguments[0]}: its attempt has ended", file=sys.stderr)
        return 1
    if questions is not None:
        return _ask(folder, Questions(**json.loads(questions)))
    try:
        order = Order.from_json(content.decode())
    except MALFORMED as error:
        return _failed(folder, of_other_version("order", error))
    tag, report = tag_of(order.manifest_id, order.attempt), partial(_report, folder)
    report("the driver has begun")
    session = _session()
    try:
        watched = beside(partial(_end_without_order, session, tag, folder))
        with watched, report_jobs(session, tag, report):
            receipt = stage(session, order)
        return _answer(folder, RECEIPT, receipt.to_json())
    except TidemarkError as error:
        return _failed(folder, error)
    finally:
        session.stop()


def _ask(folder: OrderFolder, questions: Questions) -> int:
    """Answer ``tidemark doctor``, which has no order but these questions."""
    _report(folder, "the driver has begun")
    session = _session()
    try:
        return _answer(folder, ANSWERS, json.dumps(ask_executors(session, questions)))
    finally:
        session.stop()


def _session() -> SparkSession:
    conf = SparkConf()
    for key, value in spark_configuration(None).items():  # for a driver that our spark-submit did not start
        conf.setIfMissing(key, value)
    forget_pandas()
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _end_without_order(session: SparkSession, tag: str, folder: OrderFolder, over: threading.Event) -> None:
    """End the jobs when the order is gone, until ``over``: a job may begin after the others were ended."""
    while not over.wait(LOOK_S):
        with suppress(Unavailable):  # the store may answer the next time
            if folder.get(ORDER) is None:
                end_job(session, tag)


def _report(folder: OrderFolder, line: str) -> None:
    print(line, flush=True)
    with suppress(TidemarkError):  # the store may answer the next time
        if folder.get(ORDER) is not None:
            folder.put(PROGRESS, line.encode())


def _failed(folder: OrderFolder, error: TidemarkError) -> int:
    print(error, file=sys.stderr)
    with suppress(TidemarkError):
        _answer(folder, FAILURE, json.dumps(failure_of(error)))
    return 1


def _answer(folder: OrderFolder, name: str, content: str) -> int:
    """Write an answer beside the order; return 1 if the order is gone, because then nobody waits for the answer."""
    if folder.get(ORDER) is None:
        print("the order is gone: its attempt has ended, and does not count what this driver did", file=sys.stderr)
        return 1
    folder.put(name, content.encode())
    return 0
