"""Waits until PostgreSQL has ended the sessions of dead processes.

PostgreSQL notices a death a moment later, on a busy machine after tens of milliseconds. Until then the attempt of the
dead process looks alive, because of its lock.
"""

from pathlib import Path

import psycopg

from sandbox.services.processes import wait_until

ESTABLISHED = "01"
HOLDERS = (
    "SELECT client_port, inet_server_port() FROM pg_stat_activity WHERE datname = current_database() "
    "AND client_port > 0 AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
)


def wait_without_the_dead(dsn: str) -> None:
    """Return when each session of the database that holds such a lock has a client that lives, or is a proxy's."""
    with psycopg.connect(dsn, autocommit=True, connect_timeout=10) as connection:

        def none_is_dead() -> bool:
            holders = {*connection.execute(HOLDERS).fetchall()}
            return not holders or holders <= _connections()

        wait_until(none_is_dead, "the sessions of dead processes to end", timeout=60, interval=0.01)


def _connections() -> set[tuple[int, int]]:
    """The ports of both ends of this machine's open connections."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines() if f" {ESTABLISHED} " in line]
    return {(_port(local), _port(remote)) for _, local, remote, state, *_ in lines if state == ESTABLISHED}


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
