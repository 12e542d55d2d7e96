"""Unpacks PostgreSQL 15 of Debian 12, with its extensions, without installing it, in `<state>/postgresql/`.

The wheel's PostgreSQL lacks hstore, citext and ltree, which a source of changes needs. This needs no root.
"""

import fcntl
import shutil
from pathlib import Path

from sandbox.bootstrap import debian
from sandbox.bootstrap.checkout import STATE

RELEASE = "bookworm"
MAJOR = 15
# Libraries that a small Debian lacks; it has others, such as those of C and of systemd.
LIBRARIES = (
    "libaudit1", "libcap-ng0", "libcom-err2", "libgssapi-krb5-2", "libicu72", "libk5crypto3", "libkeyutils1",
    "libkrb5-3", "libkrb5support0", "libldap-2.5-0", "liblz4-1", "libpam0g", "libpq5", "libsasl2-2", "libssl3",
    "libxml2", "libzstd1",
)  # fmt: skip
PACKAGES = (f"postgresql-{MAJOR}", f"postgresql-client-{MAJOR}", *LIBRARIES)
PROGRAMS = Path("usr/lib/postgresql") / str(MAJOR)  # below the folder that packages were unpacked into
LIBRARIES_BELOW = Path("usr/lib/x86_64-linux-gnu")


def unpacked(state: Path = STATE) -> Path:
    """Return the folder of the unpacked packages. The first call fetches them, 30 MB, and others wait for it.

    Raises ``SandboxFailed`` if the packages cannot be downloaded.
    """
    folder = state / "postgresql"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / RELEASE
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            part = root.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            debian.unpack(RELEASE, PACKAGES, part, folder / "apt")
            part.rename(root)
    return root
