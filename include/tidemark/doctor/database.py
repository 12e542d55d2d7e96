"""The manifest database: it answers, has the right tables, survives a crash, and its clock agrees with this
machine's.
"""

from collections.abc import Iterator

from tidemark.database.health import Health, health
from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.model.findings import Finding, clock, failed, ok, warning

DURABLE = {"fsync": "on", "full_page_writes": "on"}
NAME = "manifest database"


def checks(environment: Environment) -> list[Check]:
    return [Check(NAME, lambda: database(environment))]


def database(environment: Environment) -> Iterator[Finding]:
    status = health(environment.database())
    yield ok(NAME, f"{status.place}, PostgreSQL {status.server}")
    yield from _tables(status)
    yield from _durability(status)
    yield replication(status)
    yield clock(NAME, "the database", status.clock_ahead)


def _tables(status: Health) -> Iterator[Finding]:
    if status.is_airflows:
        yield failed(
            NAME,
            "this is Airflow's own metadata database",
            "create a database for Tidemark and set TIDEMARK_DB to it",
        )
    elif status.version is None:
        yield failed(NAME, "it has no Tidemark tables", "create them with: tidemark db migrate")
    elif status.wrong is not None:
        yield failed(NAME, status.wrong.what, status.wrong.next_step)
    elif status.read_only:
        yield failed(
            NAME, "it is read only, as a standby server is", "set TIDEMARK_DB to the database on the primary server"
        )
    else:
        yield ok(NAME, f"tables of version {status.version}, database {status.id}")


def _durability(status: Health) -> Iterator[Finding]:
    """Warn of settings with which a crash of the server's machine may lose the publication of a manifest."""
    unsafe = [f"{name}={status.settings[name]}" for name, safe in DURABLE.items() if status.settings[name] != safe]
    if status.settings["synchronous_commit"] == "off":
        unsafe.append("synchronous_commit=off")
    if unsafe:
        yield warning(
            NAME,
            f"it runs with {', '.join(unsafe)}: a crash of its machine may lose committed data",
            "turn these settings on; after such a loss Tidemark refuses to plan until each pipeline is adopted",
        )
    else:
        yield ok(NAME, "committed data survives a crash (fsync, synchronous_commit)")


def replication(status: Health) -> Finding:
    """Return whether a failover may lose committed transactions: plans then refuse a target that shows more than the
    database has.
    """
    if not status.standbys and not status.settings["synchronous_standby_names"]:
        return ok(NAME, "no standby server is connected, so there is nothing to fail over to")
    if status.never_commits is not None:
        return failed(NAME, status.never_commits.what, status.never_commits.remedy)
    waits = status.settings["synchronous_commit"] not in ("off", "local")
    if status.settings["synchronous_standby_names"] and waits:
        return ok(NAME, "replication is synchronous: a failover loses no committed transaction")
    return warning(
        NAME,
        f"replication is not synchronous ({status.standbys} standby servers): a failover may lose transactions",
        "set synchronous_standby_names, and synchronous_commit to on; after such a loss Tidemark refuses to plan until "
        "each pipeline is adopted",
    )
