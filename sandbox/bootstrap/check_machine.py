"""Checks this machine before anything is installed: `python -m sandbox.bootstrap.check_machine [run]`.

It runs on any Python from 3.8, with only the standard library. It prints every problem with its solution, and then
exits with 2. With `run` it also fails while another `make run` or `make up` of this checkout runs.
"""

from __future__ import annotations  # else Python 3.8 evaluates the annotations and fails

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from sandbox.bootstrap.checkout import CHECKOUT, READY, STATE

GIB = 1 << 30
# Measured: 2.2 GiB for .venv, the same again for caches on this disk, 0.6 GiB for services, jars and the demo's lake.
NEEDED_FRESH = 5 * GIB
NEEDED_LATER = 1 * GIB
JAVA_VERSIONS = ("17", "21")
INSTALL_JAVA = "install a JDK 17 or 21 (Debian: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME to one"


def check_python() -> list[str]:
    """Check for Python 3.11, for which the lock file is made, with venv and pip."""
    version = "{}.{}".format(*sys.version_info[:2])
    if version != "3.11":
        problem = f"Python 3.11 is needed, {sys.executable} is {version}"
        return [f"{problem}\n  install it, or name it: make PYTHON=/path/to/python3.11"]
    try:
        import ensurepip  # noqa: F401 -- Debian's package python3.11 does not have it
        import venv  # noqa: F401
    except ImportError:
        return [f"{sys.executable} cannot create virtual environments\n  Debian: apt-get install python3.11-venv"]
    return []


def check_java() -> list[str]:
    """Check for Java 17 or 21 with the module that Spark needs."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "the PATH"
    if java is None or not os.access(java, os.X_OK):
        return [f"no Java was found by {where}\n  {INSTALL_JAVA}"]
    settings = subprocess.run([java, "-XshowSettings:properties", "-version"], capture_output=True, text=True)
    version = re.search(r"java\.specification\.version = (\S+)", settings.stderr)
    if settings.returncode != 0 or version is None:
        return [f"{java} does not run: {settings.stderr.strip()[:200]}\n  {INSTALL_JAVA}"]
    if version[1] not in JAVA_VERSIONS:
        return [f"Spark runs on Java 17 or 21, {java} is Java {version[1]}\n  {INSTALL_JAVA}"]
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True).stdout
    if "jdk.incubator.vector" not in modules:
        return [f"{java} lacks the module jdk.incubator.vector, which Spark needs\n  {INSTALL_JAVA}"]
    return []


def check_disk() -> list[str]:
    """Check the disk space for the installation or, if that exists, for a run."""
    needed = NEEDED_LATER if (CHECKOUT / ".venv").exists() else NEEDED_FRESH
    free = shutil.disk_usage(str(CHECKOUT)).free
    if free < needed:
        problem = f"{needed / GIB:.0f} GiB of free disk space are needed at {CHECKOUT}, {free / GIB:.1f} GiB are free"
        return [f"{problem}\n  free some space, or clone into a folder on another disk"]
    return []


def check_place() -> list[str]:
    """Check for a folder that we may write, with a name that fits into lists of paths (PATH, Java's class path)."""
    if ":" in str(CHECKOUT):
        return [f"{CHECKOUT} has a colon, which separates paths in lists\n  clone into a folder without a colon"]
    if not os.access(str(CHECKOUT), os.W_OK):
        return [f"you may not write to {CHECKOUT}\n  clone into a folder that you own"]
    return []


def holder(name: str) -> str | None:
    """Return the id of the process that holds a lock file of the state folder, or None. Does not take the lock."""
    path = STATE / name
    if not path.exists():
        return None
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return lock.read().strip() or "unknown"
    return None


def answers(port: int) -> bool:
    """Return whether something accepts connections on this port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def check_alone() -> list[str]:
    """Check that no other process runs the services of this checkout."""
    pid = holder("run.lock")
    if pid is not None and READY.exists():
        page = json.loads(READY.read_text())
        silent = [f"{name} (port {port})" for name, port in page["ports"].items() if not answers(port)]
        if silent:
            problem = f"`make up` of this checkout was started (process {pid}), and {', '.join(silent)} does not answer"
            return [f"{problem}\n  start it again: make down && make up; data stays. Its logs: {STATE / 'logs'}"]
        problem = f"`make up` of this checkout is up (process {pid}): {{url}}  user {{user}}  password {{password}}"
        return [f"{problem.format(**page)}\n  work with it (docs/own-topic.md), or stop it: make down"]
    if pid is not None:
        problem = f"another `make run` or `make up` of this checkout is at work (process {pid})"
        return [f"{problem}\n  wait for it, or stop it: make down"]
    return []


def problems(purpose: str) -> list[str]:
    """Return every problem with its solution."""
    problems = check_place() + check_python() + check_java() + check_disk()
    return problems + (check_alone() if purpose == "run" else [])


def main() -> None:
    """Print the problems and exit with 2, or exit with 0."""
    reasons = problems(sys.argv[1] if len(sys.argv) > 1 else "")
    for problem in reasons:
        print(problem, file=sys.stderr)
    sys.exit(2 if reasons else 0)


if __name__ == "__main__":
    main()
