"""Whether something listens at an address, as doctor and a session of Spark ask before they begin."""

import socket

import pytest

from tidemark.spark.reach import problem_with_address


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")])
def test_an_address_is_reached_as_long_as_something_listens_there(family: int, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host.strip("[]"), 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener.listen()
        port = listener.getsockname()[1]
        assert problem_with_address(host, port) is None
    assert problem_with_address(host, port) == "Connection refused"


def test_a_name_that_nobody_knows_is_told_in_words() -> None:
    assert problem_with_address("no-such-host.invalid", 1)
