"""The wait of tasks for attempts that others make: in Airflow's triggerer, or in the slot of the task."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.environment import Environment
from tidemark.errors import TidemarkError, Unavailable
from tidemark.lifecycle.deferral import still_waiting

POLL_S = 3.0  # a manifest takes from 15 s to minutes
SILENT_S = 600.0  # without an answer of the database
NAMED = 5  # attempts in one line of the log
Answer = TypeVar("Answer")


class AttemptsEnd(BaseTrigger):
    """Fires when no attempt at these manifests is alive. The event is None, or the reason why the database cannot be
    asked.

    It only reads, and keeps nothing: it needs neither ``cleanup`` nor ``on_kill``, and a second one does no harm.
    ``also_replays``: wait for attempts at done manifests too.
    """

    def __init__(self, manifests: list[int], *, also_replays: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.manifests = sorted(manifests)
        self.also_replays = also_replays

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", {"manifests": self.manifests, "also_replays": self.also_replays}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        reason = None
        try:
            await self.wait()
        except TidemarkError as error:
            reason = str(error)
        yield TriggerEvent(reason)  # type: ignore[no-untyped-call]

    async def wait(self) -> None:
        """Wait until no attempt is alive. A database that does not answer for a while changes nothing; raises if it
        does not answer for longer, or cannot be asked: then nobody knows whether the attempts have ended.
        """
        logged, answered_at = "", time.monotonic()
        while True:
            try:
                attempts = await DATABASE.ask(self._live_attempts)
            except Unavailable as error:
                line = still_waiting(error, answered_at, SILENT_S)
            else:
                answered_at = time.monotonic()
                if not attempts:
                    return
                line = waiting_for(attempts)
            if line != logged:
                self.log.info(line)
                logged = line
            await asyncio.sleep(POLL_S)

    def _live_attempts(self, database: ManifestDatabase) -> list[Row]:
        return database.attempts.alive(self.manifests, also_replays=self.also_replays)


def waiting_for(attempts: list[Row]) -> str:
    """Return a line that names the attempts."""
    named = [f"attempt {row['attempt']} at manifest {row['manifest_id']} by {row['actor']}" for row in attempts[:NAMED]]
    more = [f"{len(attempts) - NAMED} more"] if len(attempts) > NAMED else []
    return f"waiting for the end of {'; '.join([*named, *more])}"


class SharedDatabase:
    """One session for all triggers of this process. One thread asks: hundreds of tasks may wait, and a thread that
    hangs must not take those of other triggers.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidemark-trigger")
        self._open: ManifestDatabase | None = None

    async def ask(self, question: Callable[[ManifestDatabase], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, question)

    def _ask(self, question: Callable[[ManifestDatabase], Answer]) -> Answer:
        try:
            if self._open is None:
                self._open = ManifestDatabase(Environment.from_variables().database(), "airflow triggerer")
            return question(self._open)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


DATABASE = SharedDatabase()
