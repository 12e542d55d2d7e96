"""The client of the manifest database: one session, and a part for each subject."""

import socket
import time
from datetime import UTC, datetime, timedelta
from typing import Self

from tidemark.database.adoption import Adoption
from tidemark.database.attempts import Attempts
from tidemark.database.audits import Audits
from tidemark.database.chains import Chains
from tidemark.database.decisions import Decisions
from tidemark.database.hours import Hours
from tidemark.database.manifests import Manifests
from tidemark.database.migrate import connect_to_tables
from tidemark.database.pipelines import Pipelines
from tidemark.database.publications import Publications
from tidemark.database.ranges import Ranges
from tidemark.database.runs import Runs
from tidemark.database.session import connect, describe
from tidemark.database.sinks import Sinks
from tidemark.database.statements import NamedStatements
from tidemark.database.success_files import SuccessFiles
from tidemark.database.targets import Targets
from tidemark.database.tasks import Tasks
from tidemark.database.watch import SessionWatch


def on_this_machine(who: str) -> str:
    """Return an actor for the history with the name of this machine: ``cli anna on worker-3``."""
    return f"{who} on {socket.gethostname()}"


def without_machine(actor: str) -> str:
    return actor.rpartition(" on ")[0]


class ManifestDatabase(NamedStatements):
    """One session to the manifest database; the history names the ``actor`` (a user, an Airflow task).

    Raises ``ConfigurationError`` for a database without Tidemark's tables or with tables of another version, and
    ``Unavailable`` if it does not answer. An attempt that is started here holds its session lock until ``close``; the
    lock shows others that it is alive. In a ``with`` block a thread keeps the session in use, so that it is not ended
    as idle.
    """

    def __init__(self, dsn: str, actor: str) -> None:
        super().__init__(connect_to_tables(dsn), actor)
        self._dsn = dsn
        self._watch: SessionWatch | None = None
        self._clock: tuple[datetime, float] | None = None  # the server's time, and ours when it was asked
        self.pipelines = Pipelines(self)
        self.sinks = Sinks(self)
        self.targets = Targets(self)
        self.runs = Runs(self)
        self.chains = Chains(self)
        self.ranges = Ranges(self)
        self.manifests = Manifests(self)
        self.attempts = Attempts(self)
        self.publications = Publications(self)
        self.hours = Hours(self)
        self.success_files = SuccessFiles(self)
        self.decisions = Decisions(self)
        self.audits = Audits(self)
        self.tasks = Tasks(self)
        self.adoption = Adoption(self)

    def reopened(self) -> "ManifestDatabase":
        """Open the same database over a new session, which holds none of this one's locks."""
        return ManifestDatabase(self._dsn, self.actor)

    def __enter__(self) -> Self:
        self._watch = SessionWatch(self.session, describe(self._dsn), lambda: connect(self._dsn, to_look=True))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.end()
        super().close()

    def id(self) -> str:
        return str(self.rows("database_id")[0]["id"])

    def now(self) -> datetime:
        """Return the time by the server's clock, in UTC: the clock of a worker may be wrong by hours.

        The server is asked once per session; then our own clock counts on. It stands still while the machine sleeps,
        so the result may be too early, but never too late.
        """
        if self._clock is None:
            moment: datetime = self.rows("now")[0]["now"]
            self._clock = moment.astimezone(UTC), time.monotonic()
        asked, at = self._clock
        return asked + timedelta(seconds=time.monotonic() - at)

    def user(self) -> str:
        """Return the PostgreSQL user of this session."""
        return str(self.rows("current_user")[0]["name"])
