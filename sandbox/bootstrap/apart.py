"""Packages that only some tests need, each set in a folder of its own, because `.venv` has other versions of some."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.errors import SandboxFailed


def packages_of(name: str, home: Path = STATE) -> Path:
    """Return the folder with the packages of `requirements/NAME.lock`; the first call installs them.

    Raises ``SandboxFailed`` if the installation fails.
    """
    requirements = CHECKOUT / "requirements" / f"{name}.lock"

    def install(folder: Path) -> None:
        command = [
            str(home / "tools" / "bin" / "uv"), "--quiet", "pip", "install", "--require-hashes", "--no-deps",
            "--python", sys.executable, "--target", str(folder), "-r", str(requirements),
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise SandboxFailed(
                f"the packages of {requirements.name} could not be installed:\n{done.stdout[-2000:]}",
                next_step="make setup",
            )

    return installed_once(name, requirements, home, install)


def installed_once(name: str, locked: Path, home: Path, install: Callable[[Path], None]) -> Path:
    """Return the folder of what a lock file names; the first call has ``install`` fill it.

    A lock keeps two processes from installing at the same time, and half an installation is never used.
    """
    folder = home / "apart" / f"{name}-{hashlib.sha256(locked.read_bytes()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            install(part)
            part.rename(folder)
    return folder
