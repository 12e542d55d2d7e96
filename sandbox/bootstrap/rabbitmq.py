"""Unpacks RabbitMQ and its Erlang from the system's packages, without installing them: 35 MB, in `<state>/rabbitmq/`.

Only Debian's (and Ubuntu's) packages are known. Nobody needs to be root, and nothing is started.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.bootstrap.checkout import STATE
from sandbox.errors import SandboxFailed

ERLANG = (
    "base", "asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools",
    "ssl", "syntax-tools", "tftp", "tools", "xmerl",
)  # fmt: skip
PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in ERLANG))


@dataclass(frozen=True)
class Programs:
    """The folders of one unpacked RabbitMQ."""

    home: Path
    erlang: Path

    @classmethod
    def below(cls, root: Path) -> "Programs":
        """Those below a folder that packages were unpacked into."""
        return cls(next(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")), root / "usr/lib/erlang")

    @property
    def version(self) -> str:
        """RabbitMQ's, such as ``3.10.8``."""
        return self.home.name.rpartition("-")[2]

    @property
    def erlang_programs(self) -> Path:
        """The folder of Erlang's own programs, called by their paths: its scripts know only the place of a package."""
        return next(self.erlang.glob("erts-*/bin"))


def programs(state: Path = STATE) -> Programs:
    """RabbitMQ's programs; the first call fetches and unpacks them, in 5 s, and others wait for it.

    Raises ``SandboxFailed`` where the packages cannot be had.
    """
    folder = state / "rabbitmq"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / "debian"
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            part = root.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            (part / "packages").mkdir(parents=True)
            _download(folder, part / "packages")
            for package in (part / "packages").glob("*.deb"):
                _run(["dpkg-deb", "--extract", str(package), str(part)])
            shutil.rmtree(part / "packages")
            part.rename(root)
    return Programs.below(root)


def _download(folder: Path, target: Path) -> None:
    """Download with the machine's lists of packages; where they are missing or old, with new ones of our own."""
    try:
        _run(["apt-get", "--quiet=2", "download", *PACKAGES], target)
    except SandboxFailed:
        own = [word for name in ("State", "Cache") for word in ("-o", f"Dir::{name}={folder / 'apt'}")]
        own += ["-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User="]
        (folder / "apt" / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "--quiet=2", *own, "update"])
        _run(["apt-get", "--quiet=2", *own, "download", *PACKAGES], target)


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        problem = done.stdout[-2000:] if done.returncode else ""
    except FileNotFoundError as error:
        problem = str(error)
    if problem:
        raise SandboxFailed(
            f"RabbitMQ comes from Debian's packages {', '.join(PACKAGES)}, and they cannot be had:\n{problem}",
            next_step="run this on Debian 12, and look that apt-get download rabbitmq-server works there",
        )
