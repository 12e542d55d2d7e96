"""Services of a state folder keep their ports, so that clients and open pages find them again."""

import socket
from contextlib import closing
from pathlib import Path

from sandbox.services.processes import LOWEST_PORT, free_port, kept_ports


def test_the_ports_of_a_file_stay_until_another_process_has_one(tmp_path: Path) -> None:
    file = tmp_path / "service" / "ports.json"
    ports = kept_ports(file, 2)
    assert len(set(ports)) == 2
    assert kept_ports(file, 2) == ports
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", ports[1]))
        moved = kept_ports(file, 2)
    assert ports[1] not in moved
    assert kept_ports(file, 2) == moved


def test_a_file_of_another_number_of_ports_is_written_again(tmp_path: Path) -> None:
    single = kept_ports(tmp_path / "ports.json", 1)
    three = kept_ports(tmp_path / "ports.json", 3)
    assert (len(single), len(three)) == (1, 3)
    assert free_port() not in three


def test_a_free_port_is_none_that_the_kernel_gives_to_connections() -> None:
    lowest, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert all(LOWEST_PORT <= free_port() < int(lowest) for _ in range(50))
