"""Unpacks RabbitMQ and its Erlang from Debian's packages, without installing them, in `<state>/rabbitmq/`.

Version 3 (3.10) is Debian 12's, version 4 (4.0) Debian 13's. That of another release than the machine's brings the
libraries it was built with, and runs with those. Nobody needs to be root, and nothing is started.
"""

import fcntl
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.bootstrap.checkout import STATE
from sandbox.errors import SandboxFailed

RELEASES = {3: "bookworm", 4: "trixie"}
ERLANG = (
    "base", "asn1", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools",
    "ssl", "syntax-tools", "tools", "xmerl",
)  # fmt: skip
PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in ERLANG))
LIBRARIES = ("libc6", "libcap2", "libgcc-s1", "libstdc++6", "libsystemd0", "libtinfo6", "libzstd1", "zlib1g")
OPENSSL = {3: "libssl3", 4: "libssl3t64"}
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Programs:
    """The folders of one unpacked RabbitMQ."""

    home: Path
    erlang: Path

    @classmethod
    def below(cls, root: Path) -> Self:
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


def programs(version: int = 3, state: Path = STATE) -> Programs:
    """RabbitMQ's programs; the first call fetches and unpacks them, in 5 s, and others wait for it.

    Raises ``SandboxFailed`` where the packages cannot be had.
    """
    folder = state / "rabbitmq"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / RELEASES[version]
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            part = root.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            (part / "packages").mkdir(parents=True)
            _download(version, folder / "apt", part / "packages")
            for package in (part / "packages").glob("*.deb"):
                _run(["dpkg-deb", "--extract", str(package), str(part)])
            shutil.rmtree(part / "packages")
            if RELEASES[version] != _release_of_machine():
                _run_with_own_libraries(part, root)
            part.rename(root)
    return Programs.below(root)


def _download(version: int, apt: Path, target: Path) -> None:
    """Download with the machine's lists of packages; with our own where those are old, or of another release."""
    own = [
        *("-o", f"Dir::State={apt}", "-o", f"Dir::Cache={apt}", "-o", "Dir::State::status=/var/lib/dpkg/status"),
        *("-o", "APT::Sandbox::User=", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
    ]
    names = list(PACKAGES)
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    if RELEASES[version] == _release_of_machine():
        try:
            _run(["apt-get", "--quiet=2", "download", *names], target)
        except SandboxFailed:
            pass
        else:
            return
    else:
        names += [*LIBRARIES, OPENSSL[version]]
        sources = apt / f"{RELEASES[version]}.list"
        sources.write_text(f"deb [signed-by={KEYS}] {_archive()} {RELEASES[version]} main\n")
        own += ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"]
    _run(["apt-get", "--quiet=2", *own, "update"])
    _run(["apt-get", "--quiet=2", *own, "download", *names], target)


def _archive() -> str:
    """The address of the archive that the machine's release comes from."""
    targets = _run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    )
    lines = [line.split() for line in targets.splitlines()]
    for release, component, address in lines:
        if release in (_release_of_machine(), "stable", "oldstable") and component == "main":
            return address
    raise _failed("the machine's lists of sources do not name Debian's archive")


def _release_of_machine() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def _run_with_own_libraries(part: Path, root: Path) -> None:
    """Put a script in the place of each program of Erlang, which runs it with the libraries of its own release."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for program in [*(part / "usr/lib/erlang").rglob("bin/*")]:
        if program.is_file() and not program.is_symlink() and program.read_bytes()[:4] == b"\x7fELF":
            real = program.rename(program.with_name(f"{program.name}.elf"))
            words = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, root / real.relative_to(part)]
            program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            program.chmod(0o755)


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError as error:
        raise _failed(str(error)) from error
    if done.returncode:
        raise _failed(done.stdout[-2000:])
    return done.stdout


def _failed(problem: str) -> SandboxFailed:
    return SandboxFailed(
        f"RabbitMQ comes from Debian's packages {', '.join(PACKAGES)}, and they cannot be had:\n{problem}",
        next_step="run this on Debian 12, and look that apt-get download rabbitmq-server works there",
    )
