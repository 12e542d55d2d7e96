"""The manifest database: reachable, of this version, durable, with a clock like ours."""

from collections.abc import Iterator

from tidemark.database.health import Health, health
from tidemark.database.migrate import VERSION
from tidemark.doctor.checks import Check
from tidemark.findings import Finding, clock, failed, ok, warning
from tidemark.settings import Settings

DURABLE = {"fsync": "on", "full_page_writes": "on"}
NAME = "manifest database"


def checks(settings: Settings) -> list[Check]:
    return [Check(NAME, lambda: database(settings))]


def database(settings: Settings) -> Iterator[Finding]:
    found = health(settings.database())
    yield ok(NAME, f"{found.place}, PostgreSQL {found.server}")
    yield from _tables(found)
    yield from _durability(found)
    yield clock(NAME, "the database", found.clock_ahead)


def _tables(found: Health) -> Iterator[Finding]:
    if found.is_airflows:
        yield failed(
            NAME, "this is Airflow's own metadata database", "create a database for Tidemark and name it in TIDEMARK_DB"
        )
    elif found.version is None:
        yield failed(NAME, "it has no Tidemark tables", "create them with: tidemark migrate")
    elif found.version != VERSION:
        said = f"its tables are of version {found.version}, this Tidemark needs {VERSION}"
        yield failed(NAME, said, "use the Tidemark that made them, or a database of its own")
    elif found.read_only:
        yield failed(NAME, "it is read only, such as a standby is", "name the primary server in TIDEMARK_DB")
    else:
        yield ok(NAME, f"tables of version {found.version}, database {found.id}")


def _durability(found: Health) -> Iterator[Finding]:
    """What a crash of the server's machine may take: with these off, a manifest that was done may be forgotten."""
    unsafe = [f"{name}={found.settings[name]}" for name, safe in DURABLE.items() if found.settings[name] != safe]
    if found.settings["synchronous_commit"] == "off":
        unsafe.append("synchronous_commit=off")
    if unsafe:
        yield warning(
            NAME,
            f"it runs with {', '.join(unsafe)}: a crash of its machine may lose what it has confirmed",
            "turn it on for this database; a lake that knows more than its database is refused until it is adopted",
        )
    else:
        yield ok(NAME, "what it has confirmed survives a crash (fsync, synchronous_commit)")
