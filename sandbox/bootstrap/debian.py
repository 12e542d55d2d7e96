"""Downloads packages of a release of Debian and unpacks them into a folder, without installing them.

This needs no root and changes nothing of the machine: package lists that it lacks are kept in a folder of ours.
"""

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sandbox.errors import SandboxFailed

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpack(release: str, packages: Sequence[str], target: Path, apt: Path) -> None:
    """Unpack packages of a release into ``target``, beside existing files. ``apt`` is a folder for package lists.

    Raises ``SandboxFailed`` if the packages cannot be downloaded.
    """
    archives = target / "packages"
    archives.mkdir(parents=True)
    _download(release, packages, apt, archives)
    for archive in archives.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(target)], packages)
    shutil.rmtree(archives)


def release_of_machine() -> str:
    """Return the name of the machine's release, such as ``bookworm``; empty if it has none."""
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def _download(release: str, packages: Sequence[str], apt: Path, folder: Path) -> None:
    """Download with the machine's package lists; with lists of our own if those are old or belong to another
    release.
    """
    own = [
        *("-o", f"Dir::State={apt}", "-o", f"Dir::Cache={apt}", "-o", "Dir::State::status=/var/lib/dpkg/status"),
        *("-o", "APT::Sandbox::User=", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
    ]
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    if release == release_of_machine():
        try:
            _run(["apt-get", "--quiet=2", "download", *packages], packages, folder)
        except SandboxFailed:
            pass
        else:
            return
    else:
        sources = apt / f"{release}.list"
        sources.write_text(f"deb [signed-by={KEYS}] {_archive(packages)} {release} main\n")
        own += ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"]
    _run(["apt-get", "--quiet=2", *own, "update"], packages)
    _run(["apt-get", "--quiet=2", *own, "download", *packages], packages, folder)


def _archive(packages: Sequence[str]) -> str:
    """Return the address of the archive from which the machine's release comes."""
    words = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    for line in _run(words, packages).splitlines():
        release, component, address = line.split()
        if release in (release_of_machine(), "stable", "oldstable") and component == "main":
            return address
    raise _failed("the machine's lists of sources do not name Debian's archive", packages)


def _run(command: Sequence[str], packages: Sequence[str], folder: Path | None = None) -> str:
    """Run a program and return its output. Its error names the packages to download."""
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError as error:
        raise _failed(str(error), packages) from error
    if done.returncode:
        raise _failed(done.stdout[-2000:], packages)
    return done.stdout


def _failed(problem: str, packages: Sequence[str]) -> SandboxFailed:
    return SandboxFailed(
        f"Debian's packages {', '.join(packages)} cannot be had:\n{problem}",
        next_step=f"run this on Debian 12, and look that apt-get download {packages[0]} works there",
    )
