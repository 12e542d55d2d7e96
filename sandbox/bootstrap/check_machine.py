"""What this machine must have before anything is installed: `python -m sandbox.bootstrap.check_machine [run]`.

Runs on whatever Python there is (3.8 and later), with the standard library only. Says everything that is wrong at once,
and what to do about it; exit status 2. With `run` it also refuses while another `make run` or `make up` is at work.
"""

from __future__ import annotations  # Python 3.8 would evaluate the annotations and fail before it can say what is wrong

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sandbox.bootstrap.checkout import CHECKOUT, STATE

GIB = 1 << 30
# Measured: .venv 2.2 GiB with its caches on the same disk as much again; services, jars and the demo's lake 0.6 GiB.
NEEDED_FRESH = 5 * GIB
NEEDED_LATER = 1 * GIB
JAVA_VERSIONS = ("17", "21")
INSTALL_JAVA = "install a JDK 17 or 21 (Debian: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME to one"


def check_python() -> list[str]:
    """Python 3.11 with venv and pip in it, because the lock is made for it."""
    found = "{}.{}".format(*sys.version_info[:2])
    if found != "3.11":
        need = f"Python 3.11 is needed, {sys.executable} is {found}"
        return [f"{need}\n  install it, or name it: make PYTHON=/path/to/python3.11"]
    try:
        import ensurepip  # noqa: F401 -- Debian leaves it out of its python3.11 package
        import venv  # noqa: F401
    except ImportError:
        return [f"{sys.executable} cannot make virtual environments\n  Debian: apt-get install python3.11-venv"]
    return []


def check_java() -> list[str]:
    """Java 17 or 21 with the module that Spark needs."""
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
        return [f"Spark 4.0 runs on Java 17 or 21, {java} is Java {version[1]}\n  {INSTALL_JAVA}"]
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True).stdout
    if "jdk.incubator.vector" not in modules:
        return [f"{java} lacks the module jdk.incubator.vector, which Spark needs\n  {INSTALL_JAVA}"]
    return []


def check_disk() -> list[str]:
    """Room for what will be installed, or for what a run makes when it is installed already."""
    needed = NEEDED_LATER if (CHECKOUT / ".venv").exists() else NEEDED_FRESH
    free = shutil.disk_usage(str(CHECKOUT)).free
    if free < needed:
        need = f"{needed / GIB:.0f} GiB must be free at {CHECKOUT}, {free / GIB:.1f} GiB are"
        return [f"{need}\n  make room, or clone elsewhere"]
    return []


def check_place() -> list[str]:
    """A folder that may be written, with a name that Java's and the shell's lists of paths can hold."""
    if ":" in str(CHECKOUT):
        return [f"{CHECKOUT} holds a colon, which lists of paths cannot\n  clone into a folder without"]
    if not os.access(str(CHECKOUT), os.W_OK):
        return [f"{CHECKOUT} cannot be written by you\n  clone into a folder of yours"]
    return []


def holder(name: str) -> str | None:
    """Who holds a lock file of the state folder (its process id), or None; takes nothing."""
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


def check_alone() -> list[str]:
    """Nobody else is running the services of this checkout."""
    pid = holder("run.lock")
    if pid is not None:
        busy = f"another `make run` or `make up` of this checkout is at work (process {pid})"
        return [f"{busy}\n  wait for it, or stop it: make down"]
    return []


def problems(purpose: str) -> list[str]:
    """Everything that stands in the way, each with what to do."""
    found = check_place() + check_python() + check_java() + check_disk()
    return found + (check_alone() if purpose == "run" else [])


def main() -> None:
    """Print what is wrong and exit 2, or exit 0 in silence."""
    found = problems(sys.argv[1] if len(sys.argv) > 1 else "")
    for problem in found:
        print(problem, file=sys.stderr)
    sys.exit(2 if found else 0)


if __name__ == "__main__":
    main()
