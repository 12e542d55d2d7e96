"""A real S3 store: Ceph's gateway with one monitor and one OSD, on free ports of 127.0.0.1, from the system's programs.

The OSD keeps objects in memory, so each start begins with an empty store. Logins between the three are on (cephx):
without them the gateway never comes up.
"""

import base64
import os
import secrets
import shutil
import signal
import struct
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path

from sandbox.bootstrap import ceph as programs
from sandbox.bootstrap.checkout import STATE
from sandbox.errors import SandboxFailed
from sandbox.services.guard import PR_SET_PDEATHSIG, prctl
from sandbox.services.processes import Child, Service, free_port, tail
from sandbox.services.s3 import Bucket, created

FOLDER = "ceph-"  # followed by the id of the process that owns the store
READY_S = 180  # 13 s on idle cores

# The gateway makes seven pools, each with the fewest placement groups, because groups are created one by one.
_SETTINGS = """\
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
keyring = {folder}/keyring
run dir = {folder}
admin socket =
log file =
log to stderr = true
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
mon allow pool size one = true
mon warn on pool no redundancy = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 17179869184
mon data = {folder}/mon
osd data = {folder}/osd
osd class load list = *
osd class default list = *
rgw data = {folder}/gateway
rgw gc obj min wait = 10
rgw gc processor period = 10
rgw frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
rgw enable usage log = false
"""

_KEYRING = """\
[mon.]
key = {monitor}
caps mon = "allow *"
[client.admin]
key = {admin}
caps mon = "allow *"
caps osd = "allow *"
caps mds = "allow *"
caps mgr = "allow *"
[osd.0]
key = {osd}
caps mon = "allow profile osd"
caps osd = "allow *"
caps mgr = "allow profile osd"
[client.gateway]
key = {gateway}
caps mon = "allow rw"
caps osd = "allow rwx"
"""


class Ceph(Service):
    """One store; it loses its objects when it stops."""

    def __init__(self, state: Path) -> None:
        self.state = state.resolve() / "ceph"
        self.logs = state.resolve() / "logs"
        self.port, self._monitor_port = free_port(), free_port()
        self._behind: list[Child] = []  # the gateway

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when the gateway answers."""
        lacking = programs.missing()
        if lacking:
            raise SandboxFailed(f"this machine lacks {', '.join(lacking)}", next_step=programs.INSTALL)
        shutil.rmtree(self.state, ignore_errors=True)
        for folder in ("mon", "osd", "gateway"):
            (self.state / folder).mkdir(parents=True)
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        ports = {"port": self._monitor_port, "gateway": self.port}
        (self.state / "ceph.conf").write_text(_SETTINGS.format(fsid=fsid, folder=self.state, **ports))
        (self.state / "keyring").touch(mode=0o600)
        names = ("monitor", "admin", "osd", "gateway")
        (self.state / "keyring").write_text(_KEYRING.format(**{name: _key() for name in names}))
        try:
            address = f"[v2:127.0.0.1:{self._monitor_port}]"
            self._run("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", address, "monmap")
            self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
            self._launch("monitor", "ceph-mon", "-f", "-i", "a")
            self._run("ceph", "--connect-timeout", str(READY_S), "osd", "new", osd, "0")
            self._run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd)
            self._launch("osd", "ceph-osd", "-f", "-i", "0")
            self._child = self._launch("gateway", "radosgw", "-f", "-n", "client.gateway")
            self._child.wait_ready(self._answers, timeout=READY_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the gateway, the OSD and the monitor."""
        for child in self._behind:
            child.begin_stop()
        super().stop()
        for child in self._behind:
            child.stop()
        self._behind = []

    def create_bucket(self, name: str) -> Bucket:
        """Create a bucket of a new user, and return it."""
        key_id, secret = secrets.token_hex(10).upper(), secrets.token_hex(20)
        self._run(
            "radosgw-admin", "user", "create", "-n", "client.gateway", "--uid", f"user-{uuid.uuid4().hex}",
            "--display-name", "tests", "--access-key", key_id, "--secret-key", secret,
        )  # fmt: skip
        return created(self.endpoint_url, name, key_id, secret)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def _launch(self, name: str, *command: str) -> Child:
        log, words = self.logs / f"ceph-{name}.log", [*command, "-c", "ceph.conf"]
        # On SIGTERM, the OSD would first write its memory to the disk.
        child = Child(f"Ceph's {name}", words, log, cwd=self.state, stop_signal=signal.SIGKILL)
        if name != "gateway":
            self._behind.append(child)
        return child

    def _run(self, *command: str) -> None:
        """Run a program of Ceph that ends by itself."""
        log = self.logs / "ceph-programs.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            try:
                done = subprocess.run(
                    [*command, "-c", "ceph.conf"], cwd=self.state, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output, timeout=READY_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise SandboxFailed(f"{command[0]} did not end\n{tail(log)}", next_step=f"read {log}") from None
        if done.returncode:
            raise SandboxFailed(f"{command[0]} failed\n{tail(log)}", next_step=f"read {log}")


def _key() -> str:
    """Return a key in Ceph's format: kind 1, a time, 16 random bytes."""
    return base64.b64encode(struct.pack("<hiih", 1, int(time.time()), 0, 16) + secrets.token_bytes(16)).decode()


def _end_with_us() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_beside(command: Sequence[str]) -> int:
    """Run a command beside a store, and return its exit status."""
    STATE.mkdir(exist_ok=True)
    for left in STATE.glob(f"{FOLDER}*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
    folder = STATE / f"{FOLDER}{os.getpid()}"
    with Ceph(folder) as ceph:
        variables = {**os.environ, **ceph.create_bucket("tests").environment()}
        status = subprocess.run(command, env=variables, preexec_fn=_end_with_us).returncode
    shutil.rmtree(folder)  # after an error its logs stay until the next start
    return status
