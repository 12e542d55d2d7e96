"""The wait of a task for its driver on a cluster, in Airflow's triggerer: it takes no slot and no process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tidemark.airflow.lookup import airflow_lookup
from tidemark.airflow.trigger import DATABASE, SILENT_S
from tidemark.airflow.verdict import ended_by_airflow
from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError, Unavailable
from tidemark.lifecycle.deferral import LEASE_S
from tidemark.lifecycle.failed_tasks import reason_of
from tidemark.model.manifest import AttemptState
from tidemark.spark.orders import FAILURE, RECEIPT, OrderFolder, Silence, folder_of

POLL_S = 5.0
QUEUED_S = 600.0  # for the task to get a slot when its driver has answered
Result = TypeVar("Result")
_STORES = ThreadPoolExecutor(8, thread_name_prefix="tidemark-orders")  # a store that hangs must not stop the leases


class DriverAnswers(BaseTrigger):
    """Fires when the driver of an order has answered, or when no answer is expected any more. The event is None, or the
    reason for that.

    It renews the lease of the attempt. A second one does no harm, and one that was paused finds that a newer attempt
    has taken over. ``order`` is the address of the order, and ``connection`` the id of the connection to its store.
    """

    def __init__(self, pipeline_name: str, manifest_id: int, attempt: int, order: str, connection: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline_name, self.manifest_id, self.attempt = pipeline_name, manifest_id, attempt
        self.order, self.connection = order, connection

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("pipeline_name", "manifest_id", "attempt", "order", "connection")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            reason = await self._wait()
            await DATABASE.ask(partial(self._lease, QUEUED_S))
        except TidemarkError as error:
            reason = str(error)
        yield TriggerEvent(reason)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """End the attempt. Airflow calls this only if a user has marked or cleared the task."""
        await DATABASE.ask(self._fail)
        await _in_thread(lambda: self._folder().remove())

    async def _wait(self) -> str | None:
        """Wait for the answer. Return None when it is there, or the reason why none is expected."""
        folder = await _in_thread(self._folder)
        silence, asked_at = Silence(), time.monotonic()
        while True:
            try:
                if not await DATABASE.ask(partial(self._lease, LEASE_S)):
                    return "a newer attempt has taken over"
                if await _in_thread(partial(_has_answered, folder)):
                    return None
                if progress := await _in_thread(partial(silence.hears, folder)):
                    self.log.info("the driver: %s", progress)
            except Unavailable as error:
                if time.monotonic() - asked_at > SILENT_S:
                    raise
                self.log.info("still waiting: %s", error.what)
            else:
                asked_at = time.monotonic()
                if reason := silence.is_too_long():
                    return reason
            await asyncio.sleep(POLL_S)

    def _folder(self) -> OrderFolder:
        return folder_of(self.order, self.connection, airflow_lookup)

    def _lease(self, seconds: float, database: ManifestDatabase) -> bool:
        return database.attempts.lease(self.manifest_id, self.attempt, seconds)

    def _fail(self, database: ManifestDatabase) -> None:
        reason = reason_of(ended_by_airflow(self.pipeline_name, self.manifest_id))
        with database.transaction():
            self._lease(0, database)
            database.attempts.fail(self.manifest_id, self.attempt, reason)
            database.attempts.end(self.manifest_id, self.attempt, AttemptState.FAILED, reason)


def _has_answered(folder: OrderFolder) -> bool:
    return any(folder.get(name) is not None for name in (RECEIPT, FAILURE))


async def _in_thread(ask: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(_STORES, ask)
