"""A port that is dead, frozen or closed behind a proxy is not called a port without TLS: that may pass by itself."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tidemark.kafka.tls_cause import tls_cause


@contextmanager
def listening(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """``host:port`` of a server that does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def answer_versions(connection: socket.socket) -> None:
    """As a broker without TLS: an answer to its own protocol, and the end of the connection for anything else."""
    if connection.recv(14)[:4] == b"\0\0\0\x0a":
        connection.sendall(b"\0\0\0\x04\0\0\0\x07")


BEHAVIOURS = {
    "closes at once": lambda _: None,
    "reads and closes": lambda connection: connection.recv(100),
    "says nothing": lambda _: time.sleep(3),
    "is a web server": lambda connection: (
        connection.recv(100),
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    ),
}


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_port_that_is_not_known_to_be_a_broker_is_not_judged(protocol: str, behaviour: str) -> None:
    with listening(BEHAVIOURS[behaviour]) as address:
        assert tls_cause(address, {"security.protocol": protocol}) is None


def test_a_broker_that_answers_without_tls_is_one() -> None:
    with listening(answer_versions) as address:
        cause = tls_cause(address, {"security.protocol": "SASL_SSL"})
        assert cause == f"port {address.rpartition(':')[2]} does not speak TLS, and security.protocol is SASL_SSL"
        assert tls_cause(address, {}) is None


def test_a_port_where_nobody_listens_is_not_judged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert tls_cause(f"127.0.0.1:{port}", {"security.protocol": "SSL"}) is None
