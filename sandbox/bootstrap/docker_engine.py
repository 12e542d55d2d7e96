"""Docker for `make test-compose`: `python -m sandbox.bootstrap.docker_engine` unpacks Debian's packages, and installs
none.

Engine, client and compose are those of Debian 13. The programs that they call (runc, iptables) are of the machine's own
release: they are linked to the machine's libraries.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.bootstrap.checkout import STATE

FOLDER = STATE / "docker"
UNPACKED = FOLDER / "unpacked"
RELEASE = "trixie"
OF_RELEASE = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "containerd")
OF_THE_MACHINE = (
    "runc", "iptables", "debootstrap", "libip4tc2", "libip6tc2", "libxtables12", "libmnl0", "libnetfilter-conntrack3",
    "libnfnetlink0", "libnftnl11",
)  # fmt: skip
NEEDED = ("apt-get", "dpkg", "unshare")  # of Debian, and of root


def variables() -> dict[str, str]:
    """The environment in which the unpacked programs find each other, and the client its plugins."""
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
    """Exits with 2, and says why, on a machine where it cannot work."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking or os.geteuid() != 0:
        why = f"which this machine lacks: {', '.join(lacking)}" if lacking else "and you are not root"
        sys.stderr.write(f"Docker's engine needs Debian's programs and root, {why}\n")
        sys.exit(2)
    if UNPACKED.exists():
        return
    print("set-up: Docker's engine is unpacked from Debian's packages", flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    packages = FOLDER / "packages"
    packages.mkdir(parents=True)
    download(packages, OF_THE_MACHINE, {})
    download(packages, OF_RELEASE, {"APT_CONFIG": str(apt_of_its_own(FOLDER / "apt"))})
    part = FOLDER / "part"
    for package in packages.glob("*.deb"):
        unpack = ["dpkg", "-x", str(package), str(part)]
        subprocess.run(unpack, check=True)
    shutil.rmtree(packages)
    for name in ("iptables", "ip6tables"):
        (part / "usr" / "sbin" / name).symlink_to("xtables-nft-multi")  # the package leaves it to update-alternatives
    plugins = FOLDER / "client" / "cli-plugins"
    plugins.parent.mkdir()
    plugins.symlink_to(UNPACKED / "usr" / "libexec" / "docker" / "cli-plugins")
    part.rename(UNPACKED)


def download(folder: Path, packages: Sequence[str], settings: dict[str, str]) -> None:
    """Fetch packages into a folder; the machine's own list of packages is read anew, as for an installation."""
    apt, environment = ["apt-get", "--quiet=2"], {**os.environ, **settings}
    subprocess.run([*apt, "update"], env=environment, check=True)
    words = ["--option", "APT::Sandbox::User=root", "download", *packages]
    subprocess.run([*apt, *words], cwd=folder, env=environment, check=True)


def apt_of_its_own(folder: Path) -> Path:
    """The configuration of an apt that knows `RELEASE` alone, from where this machine has its Debian from."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages"]
    lines = subprocess.run(targets, text=True, capture_output=True, check=True).stdout.splitlines()
    address = next(line.split()[0] for line in lines if line.endswith(" Debian"))
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "state" / "status").touch()
    (folder / "sources.list").write_text(f"deb {address} {RELEASE} main\n")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state" / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    configuration = folder / "apt.conf"
    configuration.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    return configuration


if __name__ == "__main__":
    main()
