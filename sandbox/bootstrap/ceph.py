"""The programs of Ceph's gateway for `make test-stores`: `python -m sandbox.bootstrap.ceph` finds or installs them.

They come from the system's packages: 69 MB. Only Debian and Ubuntu are supported.
"""

import os
import shutil
import subprocess
import sys

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool")
PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-common")
INSTALL = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"


def missing() -> list[str]:
    """Return the programs that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def main() -> None:
    """Install missing programs. If this user may not install them, exit with 2 and say what to install."""
    if not missing():
        return
    apt = shutil.which("apt-get")
    if apt and os.geteuid() == 0:
        print("set-up: Ceph's gateway is installed from the system's packages", flush=True)
        for words in (["update"], [*INSTALL.split()[1:], "--yes"]):
            subprocess.run([apt, "--quiet=2", *words], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if lacking := missing():
        problem = f"Ceph's gateway needs {', '.join(lacking)}, which this machine lacks"
        sys.stderr.write(f"{problem}\n  install it (Debian: {INSTALL})\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
