"""Docker for `make test-compose`: `python -m sandbox.bootstrap.docker_engine` unpacks Debian's packages without
installing them.

Engine, client and compose are those of Debian 13. The programs that they call (runc, iptables) come from the machine's
own release, because they are linked to the machine's libraries.
"""

import os
import shutil
import sys

from sandbox.bootstrap import debian
from sandbox.bootstrap.checkout import STATE
from sandbox.errors import SandboxFailed

FOLDER = STATE / "docker"
UNPACKED = FOLDER / "unpacked"
RELEASE = "trixie"
OF_RELEASE = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "containerd")
OF_THE_MACHINE = (
    "runc", "iptables", "debootstrap", "libip4tc2", "libip6tc2", "libxtables12", "libmnl0", "libnetfilter-conntrack3",
    "libnfnetlink0", "libnftnl11",
)  # fmt: skip
NEEDED = ("apt-get", "dpkg", "unshare")  # programs of Debian; root must run them


def variables() -> dict[str, str]:
    """Return the environment in which the unpacked programs find each other, and the client finds its plugins."""
    [libraries] = (UNPACKED / "usr" / "lib").glob("*-linux-gnu")
    return {
        **os.environ,
        "PATH": os.pathsep.join([f"{UNPACKED}/usr/sbin", f"{UNPACKED}/usr/bin", os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
        "DEBOOTSTRAP_DIR": str(UNPACKED / "usr" / "share" / "debootstrap"),
        "DOCKER_CONFIG": str(FOLDER / "client"),
    }


def main() -> None:
    """Unpack the packages. Exits with 2, and says why, on a machine where they cannot work."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking or os.geteuid() != 0:
        why = f"which this machine lacks: {', '.join(lacking)}" if lacking else "and you are not root"
        sys.stderr.write(f"Docker's engine needs Debian's programs and root, {why}\n")
        sys.exit(2)
    if UNPACKED.exists():
        return
    print("set-up: Docker's engine is unpacked from Debian's packages", flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    part = FOLDER / "part"
    for release, packages in ((debian.release_of_machine(), OF_THE_MACHINE), (RELEASE, OF_RELEASE)):
        debian.unpack(release, packages, part, FOLDER / "apt")
    for name in ("iptables", "ip6tables"):
        (part / "usr" / "sbin" / name).symlink_to("xtables-nft-multi")  # the package leaves it to update-alternatives
    plugins = FOLDER / "client" / "cli-plugins"
    plugins.parent.mkdir()
    plugins.symlink_to(UNPACKED / "usr" / "libexec" / "docker" / "cli-plugins")
    part.rename(UNPACKED)


if __name__ == "__main__":
    try:
        main()
    except SandboxFailed as error:
        sys.exit(str(error))
