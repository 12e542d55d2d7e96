"""Unpacks RabbitMQ and its Erlang from Debian's packages, without installing them, in `<state>/rabbitmq/`.

Version 3 (3.10) comes from Debian 12, version 4 (4.0) from Debian 13. If that is not the machine's release, the
libraries it was built with are unpacked too, and it runs with those. This needs no root, and starts nothing.
"""

import fcntl
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.bootstrap import debian
from sandbox.bootstrap.checkout import STATE

RELEASES = {3: "bookworm", 4: "trixie"}
ERLANG = (
    "base", "asn1", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools",
    "ssl", "syntax-tools", "tools", "xmerl",
)  # fmt: skip
PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in ERLANG))
LIBRARIES = ("libc6", "libcap2", "libgcc-s1", "libstdc++6", "libsystemd0", "libtinfo6", "libzstd1", "zlib1g")
OPENSSL = {3: "libssl3", 4: "libssl3t64"}


@dataclass(frozen=True)
class Programs:
    """The folders of one unpacked RabbitMQ."""

    home: Path
    erlang: Path

    @classmethod
    def below(cls, root: Path) -> Self:
        """Return the folders below a folder into which packages were unpacked."""
        return cls(next(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")), root / "usr/lib/erlang")

    @property
    def version(self) -> str:
        """Return RabbitMQ's version, such as ``3.10.8``."""
        return self.home.name.rpartition("-")[2]

    @property
    def erlang_programs(self) -> Path:
        """Return the folder of Erlang's own programs. They are called by path: its scripts know only the place of a
        package.
        """
        return next(self.erlang.glob("erts-*/bin"))


def programs(version: int = 3, state: Path = STATE) -> Programs:
    """Return RabbitMQ's programs. The first call fetches and unpacks them, in 5 s, and others wait for it.

    Raises ``SandboxFailed`` if the packages cannot be downloaded.
    """
    folder = state / "rabbitmq"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / RELEASES[version]
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            part = root.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            with_libraries = RELEASES[version] != debian.release_of_machine()
            libraries = (*LIBRARIES, OPENSSL[version]) if with_libraries else ()
            debian.unpack(RELEASES[version], (*PACKAGES, *libraries), part, folder / "apt")
            if with_libraries:
                _run_with_own_libraries(part, root)
            part.rename(root)
    return Programs.below(root)


def _run_with_own_libraries(part: Path, root: Path) -> None:
    """Replace each program of Erlang by a script that runs it with the libraries of its own release."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for program in [*(part / "usr/lib/erlang").rglob("bin/*")]:
        if program.is_file() and not program.is_symlink() and program.read_bytes()[:4] == b"\x7fELF":
            real = program.rename(program.with_name(f"{program.name}.elf"))
            words = [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, root / real.relative_to(part)]
            program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            program.chmod(0o755)
