"""Keeps the session of a command in use while something else works, and logs when the server makes it wait.

Servers (``idle_session_timeout``), load balancers and NAT end or forget a session that sends nothing. Then the lock
that shows an attempt to be alive would be lost. Spark and targets may work for hours.
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

import psycopg

from tidemark.database.session import Session
from tidemark.database.usable import QUERIES
from tidemark.errors import TidemarkError

BEAT_S: Final = 2.0  # idle limits may be as short as some seconds
PATIENCE_S: Final = 20.0  # log a warning after so long: a lock is awaited up to 60 s, a dead standby server for ever

log = logging.getLogger(__name__)


class SessionWatch:
    """A thread that keeps an idle session in use, and asks over another session what a statement waits for."""

    def __init__(self, session: Session, place: str, open_another: Callable[[], Session]) -> None:
        self._session = session
        self._process = session.info.backend_pid
        self._place = place
        self._open_another = open_another
        self._ended = Event()
        self._beat = Lock()  # held while this thread uses the session
        self._thread = Thread(target=self._run, name="session watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until this thread no longer uses the session: closing a session in use would crash the process.

        If the server does not answer the thread's statement, cut the connection.
        """
        self._ended.set()
        if not self._beat.acquire(timeout=BEAT_S):
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._session.fileno())) as connection:
                connection.shutdown(socket.SHUT_RDWR)
            self._beat.acquire()
        self._beat.release()

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            begun = time.monotonic()
            while not self._session.lock.acquire(timeout=PATIENCE_S):
                if self._ended.is_set():
                    return
                self._tell(time.monotonic() - begun)
            self._session.lock.release()
            with self._beat:
                if self._ended.is_set():
                    return
                if self._session.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
                    continue  # a statement inside a transaction would extend its time limit
                try:
                    self._session.execute(QUERIES["process"])
                except psycopg.Error:
                    return  # the next statement of the command raises the error

    def _tell(self, seconds: float) -> None:
        try:
            with self._open_another() as other:
                row = other.execute(QUERIES["waits_for"], {"process": self._process}).fetchone()
        except (psycopg.Error, TidemarkError) as error:
            log.warning("the manifest database (%s) has not answered for %.0f s: %s", self._place, seconds, error)
            return
        if row and row["event"]:
            event = "a synchronous standby server (IPC: SyncRep)" if row["event"] == "IPC: SyncRep" else row["event"]
            log.warning("the manifest database (%s) has waited for %.0f s for %s", self._place, seconds, event)
