"""Tests whether something listens at an address. Spark's own clients try for minutes, and report less."""

import socket

REACH_S = 5.0


def problem_with_address(host: str, port: int) -> str | None:
    """Return the reason why nothing accepts a connection there within 5 s, or None. An IPv6 address may be in
    brackets.
    """
    try:
        socket.create_connection((host.strip("[]"), port), timeout=REACH_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
