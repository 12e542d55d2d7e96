"""The set-up: `.venv` from the hashed lock, then the jars. Quick when nothing has changed.

`python -m sandbox.bootstrap.install`, by the Python 3.11 of the machine, after `check_machine`; standard library only,
because nothing is installed yet. uv does the installing; it comes from a small hashed lock of its own into
`.tidemark/tools`.
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
    """Bring `.venv` and `.tidemark/jars` up to date; exit status 1 and the tool's own words when a step fails."""
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
    """Note how long a step took, and say so when it was more than a glance."""
    start = time.monotonic()
    yield
    times[step] = time.monotonic() - start
    if times[step] > 1:
        print(f"set-up: {step} {times[step]:.1f} s", flush=True)


def install_installer() -> None:
    """Put uv into `.tidemark/tools` unless the locked one is there."""
    lock = REQUIREMENTS / "installer.lock"
    stamp = Stamp(TOOLS / "stamp", lock)
    if stamp.fits():
        return
    run([sys.executable, "-m", "venv", "--clear", str(TOOLS)], "no virtual environment could be made")
    pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run([*pip, "--require-hashes", "--only-binary=:all:", "-r", str(lock)], "uv could not be installed")
    stamp.write()


def install_packages() -> None:
    """Make `.venv` hold exactly the lock, and this project, editable."""
    lock = REQUIREMENTS / "tidemark.lock"
    packages = Stamp(VENV / "packages-stamp", lock)
    project = Stamp(VENV / "project-stamp", lock, CHECKOUT / "pyproject.toml")
    uv = [str(TOOLS / "bin" / "uv"), "--quiet"]
    python = ["--python", str(VENV / "bin" / "python")]
    failed = "the packages could not be installed"
    if not packages.fits():
        if not (VENV / "bin" / "python").exists():
            shutil.rmtree(VENV, ignore_errors=True)
            run([*uv, "venv", "--python", sys.executable, str(VENV)], "no virtual environment could be made")
        run([*uv, "pip", "sync", "--require-hashes", "--compile-bytecode", *python, str(lock)], failed)
        project.path.unlink(missing_ok=True)
        packages.write()
    if not project.fits():
        editable = ["--no-deps", "--no-build-isolation", "--editable", str(CHECKOUT)]
        run([*uv, "pip", "install", *python, *editable], failed)
        project.write()


class Stamp:
    """A file that says from which inputs (by content) and in which place something was made."""

    def __init__(self, path: Path, *inputs: Path) -> None:
        self.path = path
        parts = [str(CHECKOUT).encode(), sys.version.encode(), *(one.read_bytes() for one in inputs)]
        self.text = hashlib.sha256(b"\0".join(parts)).hexdigest()

    def fits(self) -> bool:
        """Whether what is there was made from the same."""
        return self.path.exists() and self.path.read_text() == self.text

    def write(self) -> None:
        """Say so from now on; written last, so that an interrupted set-up is done again."""
        self.path.write_text(self.text)


def run(command: list[str], failed: str) -> None:
    """Run a tool, showing what it says; ends the set-up when it fails."""
    done = subprocess.run(command, cwd=CHECKOUT)
    if done.returncode != 0:
        sys.exit(f"{failed} (see above)\n  mend that and try again; make clean starts from nothing")


if __name__ == "__main__":
    main()
