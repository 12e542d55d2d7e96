"""An engine of Docker on its own socket and data, from unpacked packages; root only.

It changes nothing of the machine's network except the bridges of its networks, which it removes with them: no firewall,
no forwarding. So containers reach each other, and this machine reaches their published ports, but containers reach
nothing outside. Only an image is built with the machine's own network.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.bootstrap import docker_engine as programs
from sandbox.errors import SandboxFailed
from sandbox.services.processes import Child, Service, tail

TRUSTED = Path("/usr/local/share/ca-certificates")  # certificates that the machine's administrator trusts
SUITE = "bookworm"  # the Debian of Airflow's image, which the imported image replaces


class DockerEngine(Service):
    """One engine. A later one with the same folder has the same images, volumes and containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "logs" / "docker.log"

    def start(self) -> None:
        """Return when the engine answers."""
        # Paths of sockets have at most 107 characters, which a checkout's folder may use up.
        self._sockets = Path(tempfile.mkdtemp(prefix="tidemark-docker-"))
        self.variables = {**programs.variables(), "DOCKER_HOST": f"unix://{self._sockets}/docker.sock"}
        command = ["unshare", "--mount", "dockerd", "--host", self.variables["DOCKER_HOST"]]  # its mounts end with it
        command += ["--data-root", str(self.folder / "data"), "--exec-root", str(self._sockets / "run")]
        command += ["--pidfile", str(self._sockets / "docker.pid"), "--exec-opt", "native.cgroupdriver=cgroupfs"]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        self._child = Child("Docker", command, self.log, env=self.variables, grace=60)
        self._child.wait_ready(lambda: self._call("version").returncode == 0, timeout=60)

    def stop(self) -> None:
        """Stop the engine and all containers."""
        super().stop()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def docker(self, *words: str | Path, **variables: str) -> str:
        """Run a command of Docker's client and return its output. Raises ``SandboxFailed`` if it fails."""
        done = self._call(*words, **variables)
        if done.returncode != 0:
            command = " ".join(map(str, words))
            raise SandboxFailed(
                f"docker {command}\n{(done.stdout + done.stderr)[-4000:]}", next_step=f"read {self.log}"
            )
        return done.stdout

    def _call(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.variables, **variables}
        command = ["docker", *map(str, words)]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True, capture_output=True)

    def has_image(self, tag: str) -> bool:
        return bool(self.docker("images", "--quiet", tag).strip())

    def import_debian(self, tag: str) -> None:
        """Make an image of a minimal Debian, which trusts the certificates that this machine trusts."""
        root = self.folder / "debian"
        shutil.rmtree(root, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates,curl", SUITE, str(root)]
        environment = {name: value for name, value in self.variables.items() if name != "LD_LIBRARY_PATH"}
        self._run_logged(command, environment)
        shutil.copytree(TRUSTED, root / TRUSTED.relative_to("/"), dirs_exist_ok=True)
        self._run_logged(["chroot", str(root), "update-ca-certificates"], environment)
        archive = self.folder / "debian.tar"
        self._run_logged(["tar", "-C", str(root), "-cf", str(archive), "."], environment)
        shutil.rmtree(root)
        self.docker("import", archive, tag)
        archive.unlink()

    def _run_logged(self, command: list[str], environment: dict[str, str]) -> None:
        with self.log.open("ab") as output:
            done = subprocess.run(command, env=environment, stdout=output, stderr=output)
        if done.returncode != 0:
            raise SandboxFailed(f"{command[0]} failed\n{tail(self.log)}", next_step=f"read {self.log}")
