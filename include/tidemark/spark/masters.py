"""Checks that a cluster answers before Spark starts: Spark's own clients try for minutes, and report less."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from tidemark.errors import ConfigurationError, Unavailable
from tidemark.spark.reach import problem_with_address

KUBERNETES, STANDALONE, YARN = "k8s://", "spark://", "yarn"
DEFAULT_PORT = {STANDALONE: 7077, YARN: 8032}
FOLDERS_OF_YARN = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_RM = "yarn.resourcemanager"
_FORM = {
    STANDALONE: "write it as spark://host:port",
    KUBERNETES: "write it as k8s://https://host:port",
    YARN: f"write host:port as {_RM}.address into the cluster's yarn-site.xml",
}
# What keeps a cluster from giving executors, and where its answer is read.
_ROOM = {
    YARN: "look at the application in YARN's resource manager: its queue needs room for spark.executor.memory",
    KUBERNETES: "kubectl get events, kubectl describe pod: an executor needs the image, a node or quota with room for "
    "spark.executor.memory, and your account the right to create pods",
}
_ROOM_OF_WORKERS = "look at the master's page: some worker needs a free core and spark.executor.memory"


def is_local(master: str) -> bool:
    """Return whether tasks run in the driver's own JVM, with its files; false for ``local-cluster``."""
    return master == "local" or master.startswith("local[")


def step_to_executors(master: str) -> str:
    """Return what to do when a cluster gives no executor."""
    return next((step for kind, step in _ROOM.items() if master.startswith(kind)), _ROOM_OF_WORKERS)


def check_master(master: str) -> bool:
    """Return true if an address of the master accepts a connection; false if the master has no address here.

    Raises ``Unavailable`` if none of its addresses does, ``ConfigurationError`` for an address or a set-up that Spark
    would refuse.
    """
    refused = []
    for host, port in _addresses(master):
        problem = problem_with_address(host, port)
        if problem is None:
            return True
        refused.append(f"{host}:{port}: {problem}")
    if refused:
        raise Unavailable(
            f"the Spark master cannot be reached ({'; '.join(refused)})",
            next_step="check that it runs and that this machine may connect to it; nothing was read",
            master=master,
        )
    return False


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    if master.startswith(STANDALONE):
        for address in master.removeprefix(STANDALONE).split(","):
            yield _host_and_port(master, address, DEFAULT_PORT[STANDALONE])
    elif master.startswith(KUBERNETES):
        address = master.removeprefix(KUBERNETES)
        url = urlsplit(address if "://" in address else f"https://{address}")
        yield _host_and_port(master, url.netloc, 80 if url.scheme == "http" else 443)
    elif master == YARN:
        yield from _resource_managers()


def _host_and_port(master: str, address: str, default: int) -> tuple[str, int]:
    host, _, port = address.rpartition(":") if ":" in address else (address, ":", str(default))
    if not port.isdecimal():
        form = next(form for kind, form in _FORM.items() if master.startswith(kind))
        what = f"{master} is not a Spark master" if master != YARN else f"{address} is not the address of a manager"
        raise ConfigurationError(what, next_step=form, master=master)
    return host, int(port)


def _resource_managers() -> Iterator[tuple[str, int]]:
    """Yield the addresses of yarn-site.xml; none if they refer to variables, which Hadoop alone resolves."""
    folder = next((os.environ[name] for name in FOLDERS_OF_YARN if os.environ.get(name)), "")
    file = Path(folder, "yarn-site.xml")
    if not folder or not file.is_file():
        raise ConfigurationError(
            f"there is no yarn-site.xml in {folder}" if folder else f"{' or '.join(FOLDERS_OF_YARN)} is not set",
            next_step="set HADOOP_CONF_DIR to the folder with the cluster's yarn-site.xml",
            master=YARN,
        )
    try:
        entries = ET.parse(file).getroot()  # noqa: S314 -- a file of this machine, which Hadoop reads, too
    except ET.ParseError as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error}", next_step="correct it; Hadoop reads the same file", master=YARN
        ) from None
    properties = {entry.findtext("name"): entry.findtext("value") or "" for entry in entries}
    for suffix in [f".{name.strip()}" for name in properties.get(f"{_RM}.ha.rm-ids", "").split(",") if name] or [""]:
        address = properties.get(f"{_RM}.address{suffix}") or properties.get(f"{_RM}.hostname{suffix}", "")
        if address and "$" not in address:
            yield _host_and_port(YARN, address, DEFAULT_PORT[YARN])
