"""Waits for the ends of sessions whose processes are dead.

PostgreSQL notices it a moment later, on a busy machine after tens of milliseconds. Until then an attempt of the dead
looks alive.
"""

from pathlib import Path

import psycopg

from sandbox.services.processes import wait_until

ESTABLISHED = "01"
PORTS = "SELECT client_port FROM pg_stat_activity WHERE datname = current_database() AND client_port > 0"


def wait_without_the_dead(dsn: str) -> None:
    """Return when each session of the database has a client that lives."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        wait_until(
            lambda: {port for (port,) in connection.execute(PORTS)} <= _clients_of(connection.info.port),
            "the sessions of dead processes to end",
            timeout=60,
            interval=0.005,
        )


def _clients_of(server: int) -> set[int]:
    """The ports of this machine's open connections to a server."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {_port(local) for _, local, remote, state, *_ in lines if state == ESTABLISHED and _port(remote) == server}


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
