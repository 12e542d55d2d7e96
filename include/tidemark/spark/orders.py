"""The folder of an order in a store: the order, and beside it what its driver writes. It needs no PySpark."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.errors import TidemarkError, WorkFailed
from tidemark.model.order import Order
from tidemark.model.receipt import MALFORMED, Receipt
from tidemark.paths import is_remote, manifest_staging
from tidemark.spark import ended
from tidemark.spark.failures import failure_from
from tidemark.spark.probe import Questions
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store
from tidemark.version import VERSION

ORDER, RECEIPT, FAILURE, PROGRESS = "order.json", "receipt.json", "failure.json", "progress.txt"
QUESTIONS, ANSWERS = "questions.json", "answers.json"  # of `tidemark doctor`, in place of an order and a receipt

BEGINS_S = 1800.0  # for a driver to begin after it was submitted: a queue of the cluster may be full
QUIET_S = 300.0  # without progress of a driver, which writes some every 30 s


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
        """Remove the order and what a driver wrote; a driver that still works ends its jobs then."""
        names = (ORDER, QUESTIONS, RECEIPT, ANSWERS, FAILURE, PROGRESS)
        self.store.delete(f"{self.name}/{name}" for name in names)


class Silence:
    """The time in which a driver has written nothing, where no process says that it has ended."""

    def __init__(self) -> None:
        self._submitted_at = time.monotonic()
        self._changed_at: float | None = None
        self.progress: str | None = None

    def hears(self, folder: OrderFolder) -> str | None:
        """Look for progress, and return it if it is new."""
        content = folder.get(PROGRESS)
        if content is None or content.decode() == self.progress:
            return None
        self.progress, self._changed_at = content.decode(), time.monotonic()
        return self.progress

    def excuse(self) -> None:
        """Count from now on: the store did not answer, so the driver could not write either."""
        if self._changed_at is None:
            self._submitted_at = time.monotonic()
        else:
            self._changed_at = time.monotonic()

    def is_too_long(self) -> str | None:
        """Return the reason why no answer is expected any more; else None."""
        now = time.monotonic()
        if self._changed_at is None:
            late = now - self._submitted_at > BEGINS_S
            return f"it has not begun within {BEGINS_S / 60:.0f} minutes after it was submitted" if late else None
        if now - self._changed_at > QUIET_S:
            return f"it has written no progress for {QUIET_S / 60:.0f} minutes; the last was: {self.progress}"
        return None


def write_order(order: Order, orders: ObjectStore, *, of_sink: bool = False) -> OrderFolder:
    """Write the order into a folder of its own and return the folder.

    ``orders`` is the root of one sink (``of_sink``), or belongs to one manifest database alone. There, first remove the
    folders of attempts up to this one, because no sink does. A restored database may reuse an attempt number, and a
    driver of the older attempt may still work: its receipt goes to another folder.
    """
    name = order.staging
    if not of_sink:
        remove_orders(orders, order.manifest_id, order.attempt)
        name = f"{name}/{uuid4().hex}"
    folder = OrderFolder(orders, name)
    folder.put(ORDER, order.to_json().encode())
    return folder


def write_questions(questions: Questions, orders: ObjectStore) -> OrderFolder:
    """Write questions for a driver into a folder of their own and return the folder; the order there is empty."""
    folder = OrderFolder(orders, f"_doctor-{uuid4().hex}")
    folder.put(QUESTIONS, json.dumps(asdict(questions)).encode())
    folder.put(ORDER, b"")
    return folder


def remove_orders(orders: ObjectStore, manifest_id: int, attempt: int) -> None:
    """Remove the orders of all attempts up to this one; ``orders`` belongs to one manifest database alone."""
    attempts = manifest_staging(manifest_id)
    for number in orders.folders(attempts):
        if int(number) <= attempt:
            orders.delete_folder(f"{attempts}/{number}")


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
            return of_other_version("receipt", error)
    return _find_failure(folder)


def find_answers(folder: OrderFolder) -> dict[str, Any] | TidemarkError | None:
    """Return the answers to questions that a driver wrote, or the error that it wrote; None without either."""
    answers = folder.get(ANSWERS)
    return _find_failure(folder) if answers is None else json.loads(answers)


def _find_failure(folder: OrderFolder) -> TidemarkError | None:
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
    raise without_receipt(order, what, ended.advice(status) or ended.ABOVE)


def without_receipt(order: Order, what: str, look: str) -> WorkFailed:
    """Return the error of an attempt whose Spark left nothing; ``look`` says where to find the reason."""
    return WorkFailed(
        what,
        next_step=f"nothing is published; {look}; a retry starts a new attempt: tidemark retry {order.pipeline_name}",
        pipeline=order.pipeline_name,
        manifest=order.manifest_id,
        attempt=order.attempt,
    )


def folder_of(address: str, connection: str | None = None, lookup: Lookup = from_environment) -> OrderFolder:
    """Return the folder of the order with this address; ``connection`` is the id of the connection to its store."""
    place = address if is_remote(address) else str(Path(address).absolute())
    root, name, _ = place.rsplit("/", 2)
    return OrderFolder(open_store(root, {"connection": connection} if connection else {}, lookup), name)


def of_other_version(what: str, error: Exception) -> WorkFailed:
    return WorkFailed(
        f"Tidemark {VERSION} cannot read the {what} of a driver ({type(error).__name__}: {error})",
        next_step="give the driver's image the same version as this machine, then: tidemark retry {pipeline}",
    )
