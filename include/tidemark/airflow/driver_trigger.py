"""The wait of a task for its driver on a cluster, in Airflow's triggerer: it takes no slot and no process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tidemark.airflow.lookup import airflow_lookup
from tidemark.airflow.trigger import DATABASE, SILENT_S
from tidemark.airflow.verdict import ended_by_airflow
from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError, Unavailable
from tidemark.lifecycle.attempt import end_deferred
from tidemark.lifecycle.deferral import LEASE_S, still_waiting
from tidemark.spark.orders import FAILURE, RECEIPT, OrderFolder, Silence, folder_of

POLL_S = 5.0
RENEW_S = LEASE_S / 8
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
        self._opened: OrderFolder | None = None

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
        try:
            await DATABASE.ask(self._end)
        finally:
            await _in_thread(lambda: self._folder().remove())

    async def _wait(self) -> str | None:
        """Wait for the answer, and renew the lease meanwhile, also while the store hangs. Return None when the answer
        is there, or the reason why none is expected.
        """
        waits = [asyncio.create_task(wait) for wait in (self._renew(), self._look())]
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return ended.pop().result()
        finally:
            for wait in waits:
                wait.cancel()

    async def _renew(self) -> str:
        """Renew the lease until a newer attempt has taken over, which is what this returns."""
        renewed_at = time.monotonic()
        while True:
            try:
                if not await DATABASE.ask(partial(self._lease, LEASE_S)):
                    return "a newer attempt has taken over"
                renewed_at = time.monotonic()
            except Unavailable as error:
                self.log.info(still_waiting(error, renewed_at, SILENT_S))
            await asyncio.sleep(RENEW_S)

    async def _look(self) -> str | None:
        """Look for the answer until it is there, or until none is expected; return the reason for that."""
        silence, answered_at = Silence(), time.monotonic()
        while True:
            try:
                folder = await _in_thread(self._folder)
                if await _in_thread(partial(_has_answered, folder)):
                    return None
                if progress := await _in_thread(partial(silence.hears, folder)):
                    self.log.info("the driver: %s", progress)
            except Unavailable as error:
                self.log.info(still_waiting(error, answered_at, SILENT_S))
                silence.excuse()
            else:
                answered_at = time.monotonic()
                if reason := silence.is_too_long():
                    return reason
            await asyncio.sleep(POLL_S)

    def _folder(self) -> OrderFolder:
        try:
            self._opened = self._opened or folder_of(self.order, self.connection, airflow_lookup)
            return self._opened
        except AirflowRuntimeError as error:
            raise Unavailable(
                f"Airflow does not give connection {self.connection}: {error}", next_step="see Airflow's API server"
            ) from error

    def _lease(self, seconds: float, database: ManifestDatabase) -> bool:
        return database.attempts.lease(self.manifest_id, self.attempt, seconds)

    def _end(self, database: ManifestDatabase) -> None:
        error = ended_by_airflow(self.pipeline_name, self.manifest_id)
        end_deferred(database, self.manifest_id, self.attempt, error)


def _has_answered(folder: OrderFolder) -> bool:
    return any(folder.get(name) is not None for name in (RECEIPT, FAILURE))


async def _in_thread(ask: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(_STORES, ask)
