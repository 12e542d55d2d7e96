"""Installs `.venv` from the lock file with hashes, and the jars. Quick if nothing has changed.

The machine's Python 3.11 runs `python -m sandbox.bootstrap.install` after `check_machine`, with only the standard
library, because nothing is installed yet. uv installs the packages. uv itself goes into `.tidemark/tools`, from its own
lock file.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox.bootstrap.check_machine import holder
from sandbox.bootstrap.checkout import CHECKOUT, STATE

VENV = CHECKOUT / ".venv"
TOOLS = STATE / "tools"
REQUIREMENTS = CHECKOUT / "requirements"
TIMES = STATE / "set-up.json"


def main() -> None:
    """Bring `.venv` and `.tidemark/jars` up to date. Exits with 1 and the tool's own message if a step fails."""
    STATE.mkdir(exist_ok=True)
    with (STATE / "set-up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            busy = f"another set-up of this checkout is at work (process {holder('set-up.lock')})"
            sys.exit(f"{busy}\n  wait for it to end")
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        times: dict[str, float] = {}
        with timed(times, "installer"):
            install_installer()
        with timed(times, "Python packages"):
            install_packages()
        with timed(times, "jars"):
            run([str(VENV / "bin" / "python"), "-m", "sandbox", "jars"], "the jars could not be fetched")
        TIMES.write_text(json.dumps(times))


@contextlib.contextmanager
def timed(times: dict[str, float], step: str) -> Iterator[None]:
    """Store how long a step took, and print it if it was more than a second."""
    start = time.monotonic()
    yield
    times[step] = time.monotonic() - start
    if times[step] > 1:
        print(f"set-up: {step} {times[step]:.1f} s", flush=True)


def install_installer() -> None:
    """Install uv into `.tidemark/tools`, unless it is up to date."""
    lock = REQUIREMENTS / "installer.lock"
    stamp = Stamp(TOOLS / "stamp", lock)
    if stamp.is_current():
        return
    run([sys.executable, "-m", "venv", "--clear", str(TOOLS)], "the virtual environment could not be created")
    pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run([*pip, "--require-hashes", "--only-binary=:all:", "-r", str(lock)], "uv could not be installed")
    stamp.write()


def install_packages() -> None:
    """Install into `.venv` exactly the packages of the lock file, and this project as editable."""
    lock = REQUIREMENTS / "tidemark.lock"
    packages = Stamp(VENV / "packages-stamp", lock)
    project = Stamp(VENV / "project-stamp", lock, CHECKOUT / "pyproject.toml")
    uv = [str(TOOLS / "bin" / "uv"), "--quiet"]
    python = ["--python", str(VENV / "bin" / "python")]
    failed = "the packages could not be installed"
    if not packages.is_current():
        if not (VENV / "bin" / "python").exists():
            shutil.rmtree(VENV, ignore_errors=True)
            run([*uv, "venv", "--python", sys.executable, str(VENV)], "the virtual environment could not be created")
        run([*uv, "pip", "sync", "--require-hashes", "--compile-bytecode", *python, str(lock)], failed)
        project.path.unlink(missing_ok=True)
        packages.write()
    if not project.is_current():
        editable = ["--no-deps", "--no-build-isolation", "--editable", str(CHECKOUT)]
        run([*uv, "pip", "install", *python, *editable], failed)
        project.write()


class Stamp:
    """A file with a hash of everything that an installation was made from: inputs, folder and Python."""

    def __init__(self, path: Path, *inputs: Path) -> None:
        self.path = path
        parts = [str(CHECKOUT).encode(), sys.version.encode(), *(path.read_bytes() for path in inputs)]
        self.text = hashlib.sha256(b"\0".join(parts)).hexdigest()

    def is_current(self) -> bool:
        return self.path.exists() and self.path.read_text() == self.text

    def write(self) -> None:
        """Write the hash. Call this last, so that an interrupted installation is repeated."""
        self.path.write_text(self.text)


def run(command: list[str], failed: str) -> None:
    """Run a tool and show its output. Ends the set-up if the tool fails."""
    done = subprocess.run(command, cwd=CHECKOUT)
    if done.returncode != 0:
        sys.exit(f"{failed} (see above)\n  correct that and try again; make clean removes everything")


if __name__ == "__main__":
    main()
