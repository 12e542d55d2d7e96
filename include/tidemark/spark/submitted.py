"""The application for ``spark-submit``: reads an order, and writes a receipt or a failure beside it, in any store.

A driver on a cluster may be submitted twice, or wake when its attempt has ended. Its tasks stage under names of their
own (``job.py``), so every receipt is whole, and the attempt publishes the files of the one that it has read. When the
order is removed, the driver ends its jobs and writes nothing more.
"""

import json
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark import SparkConf
from pyspark.sql import SparkSession

from tidemark.errors import TidemarkError, Unavailable, WorkFailed
from tidemark.model.order import Order
from tidemark.model.receipt import MALFORMED, Receipt
from tidemark.paths import is_remote, manifest_staging
from tidemark.spark import ended
from tidemark.spark.failures import failure_from, failure_of
from tidemark.spark.job import ABOVE, stage
from tidemark.spark.jobs import beside, end_job, report_jobs, tag_of
from tidemark.spark.session import forget_pandas, spark_configuration
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store
from tidemark.version import VERSION

ORDER, RECEIPT, FAILURE = "order.json", "receipt.json", "failure.json"
LOOK_S = 5.0  # between two looks of a driver for its order
USAGE = "usage: spark-submit application.py ADDRESS/order.json [CONNECTION]"


@dataclass(frozen=True)
class OrderFolder:
    """The folder of an order in a store."""

    store: ObjectStore
    name: str

    @property
    def address(self) -> str:
        return f"{self.store.root}/{self.name}/{ORDER}"

    def get(self, name: str) -> bytes | None:
        return self.store.get(f"{self.name}/{name}")

    def put(self, name: str, content: bytes) -> None:
        self.store.put(f"{self.name}/{name}", content)

    def remove(self) -> None:
        """Remove the order, the receipt and the failure; a driver that still works ends its jobs then."""
        self.store.delete(f"{self.name}/{name}" for name in (ORDER, RECEIPT, FAILURE))


def write_order(order: Order, orders: ObjectStore, *, of_sink: bool = False) -> OrderFolder:
    """Write the order into a folder of its own and return the folder.

    ``orders`` is the root of one sink (``of_sink``), or belongs to one manifest database alone. There, first remove the
    folders of attempts up to this one, because no sink does. A restored database may reuse an attempt number, and a
    driver of the older attempt may still work: its receipt goes to another folder.
    """
    name = order.staging
    if not of_sink:
        attempts = manifest_staging(order.manifest_id)
        for attempt in orders.folders(attempts):
            if int(attempt) <= order.attempt:
                orders.delete_folder(f"{attempts}/{attempt}")
        name = f"{name}/{uuid4().hex}"
    folder = OrderFolder(orders, name)
    folder.put(ORDER, order.to_json().encode())
    return folder


def write_order_here(order: Order, orders: Path, of_sink: str | None) -> OrderFolder:
    """Write the order into a folder of this machine: that of a sink, or without one ``orders``."""
    return write_order(order, open_store(of_sink or str(orders.absolute())), of_sink=of_sink is not None)


def find_answer(folder: OrderFolder) -> Receipt | TidemarkError | None:
    """Return the receipt that a job wrote beside its order, or else the error that it wrote; None without either.

    A job whose store did not confirm the receipt may have written both.
    """
    receipt = folder.get(RECEIPT)
    if receipt is not None:
        try:
            return Receipt.from_json(receipt.decode())
        except MALFORMED as error:
            return _of_other_version("receipt", error)
    failure = folder.get(FAILURE)
    return None if failure is None else failure_from(json.loads(failure))


def read_receipt(folder: OrderFolder, order: Order, status: int = 0) -> Receipt:
    """Return the receipt that the job wrote beside its order. Raises the error that the job wrote, or an error if it
    was killed.

    ``status`` is the exit status of ``spark-submit``, negative for the signal that killed it. An error that the job
    wrote after its JVM was killed is ignored: it only says that the JVM did not answer.
    """
    answer = find_answer(folder)
    if isinstance(answer, Receipt):
        return answer
    if answer is not None and status >= 0:
        raise answer
    what = ended.describe_end(status) if status else "Spark ended without a receipt"
    raise without_receipt(order, what, ended.advice(status) or ABOVE)


def without_receipt(order: Order, what: str, look: str) -> WorkFailed:
    """Return the error of an attempt whose Spark left nothing; ``look`` says where to find the reason."""
    return WorkFailed(
        what,
        next_step=f"nothing is published; {look}; a retry starts a new attempt: tidemark retry {order.pipeline_name}",
        pipeline=order.pipeline_name,
        manifest=order.manifest_id,
        attempt=order.attempt,
    )


def main(arguments: list[str]) -> int:
    """Do one order. Exit status 1, with a failure file, if it cannot be done; 2 on wrong use.

    ``CONNECTION`` is the id of the connection to the store of the order, which the environment has.
    """
    if not 1 <= len(arguments) <= 2:
        print(USAGE, file=sys.stderr)
        return 2
    folder = _folder_of(*arguments)
    content = folder.get(ORDER)
    if content is None:
        print(f"there is no order {arguments[0]}: its attempt has ended", file=sys.stderr)
        return 1
    try:
        order = Order.from_json(content.decode())
    except MALFORMED as error:
        return _failed(folder, _of_other_version("order", error))
    tag = tag_of(order.manifest_id, order.attempt)
    conf = SparkConf()
    for key, value in spark_configuration(None).items():  # for a driver that our spark-submit did not start
        conf.setIfMissing(key, value)
    forget_pandas()
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        watched = beside(partial(_end_without_order, session, tag, folder))
        with watched, report_jobs(session, tag, partial(print, flush=True)):
            receipt = stage(session, order)
        return _answer(folder, RECEIPT, receipt.to_json())
    except TidemarkError as error:
        return _failed(folder, error)
    finally:
        session.stop()


def _folder_of(address: str, connection: str | None = None) -> OrderFolder:
    place = address if is_remote(address) else str(Path(address).absolute())
    root, name, _ = place.rsplit("/", 2)
    return OrderFolder(open_store(root, {"connection": connection} if connection else {}), name)


def _end_without_order(session: SparkSession, tag: str, folder: OrderFolder, over: threading.Event) -> None:
    """End the jobs when the order is gone, until ``over``: a job may begin after the others were ended."""
    while not over.wait(LOOK_S):
        with suppress(Unavailable):  # the store may answer the next time
            if folder.get(ORDER) is None:
                end_job(session, tag)


def _of_other_version(what: str, error: Exception) -> WorkFailed:
    return WorkFailed(
        f"Tidemark {VERSION} cannot read the {what} of a driver ({type(error).__name__}: {error})",
        next_step="give the driver's image the same version as this machine, then: tidemark retry {pipeline}",
    )


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
