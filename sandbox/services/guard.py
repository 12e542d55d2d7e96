"""Run one command and answer for everything it starts: `python guard.py GRACE SIGNAL USER COMMAND...`.

Started by `processes.py` as a file, with the standard library only. The guard is the *subreaper* of the command:
a process that loses its parent, or moves to a group or session of its own (Airflow's tasks and Spark do), still hangs
below it. It stops the whole tree when its stdin closes, which the kernel does for it even when its parent was killed
with SIGKILL: first SIGNAL (a number) to the command's group, GRACE seconds later SIGKILL to what is left, until nothing
is. USER drops root's rights for the command ("-" keeps them). On stdout it says `pid N` and later `exit N`.

When the command dies by itself the guard leaves the rest alone, so that a test may kill a scheduler and keep its tasks.
Outside Linux there is neither subreaper nor /proc: there the command's process group is all that is stopped.
"""

import contextlib
import ctypes
import os
import pwd
import select
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"


def prctl(option: int, value: int) -> None:
    """Tell the kernel how to treat this process; does nothing outside Linux."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_command(guard_pid: int, user: str, command: list[str]) -> None:
    """Turn the forked child into the command; never returns."""
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        if user != "-":
            account = pwd.getpwnam(user)
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
        # After setuid, which clears it. The kernel sends it when the guard itself is killed.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard_pid:
            os._exit(1)
        os.execvp(command[0], command)  # noqa: S606 -- a list made by us, as everywhere
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    os._exit(127)


def descendants() -> list[int]:
    """Every process below this one, from /proc; nothing outside Linux."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*") if LINUX else ():
        with contextlib.suppress(OSError):
            # "pid (name) state ppid ..": the name may hold spaces and brackets, so look behind the last one.
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    heads = [os.getpid()]
    while heads:
        below = children.get(heads.pop(), [])
        found += below
        heads += below
    return found


def reap(main: int) -> int | None:
    """Collect the dead; the command's exit code if it was among them (128 + signal when a signal ended it)."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == main:
            code = os.waitstatus_to_exitcode(status)
            code = 128 - code if code < 0 else code


def stop(main: int, first: int, grace: float) -> None:
    """End the whole tree and return when it is gone."""
    with contextlib.suppress(OSError):
        os.killpg(main, signal.SIGCONT)
        os.killpg(main, first)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        reap(main)
        if not descendants() and not group_lives(main):
            return
        time.sleep(0.03)
    while left := descendants() or group_lives(main):
        with contextlib.suppress(OSError):
            os.killpg(main, signal.SIGKILL)
        for pid in left if isinstance(left, list) else []:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        reap(main)
        time.sleep(0.03)


def group_lives(main: int) -> bool:
    """Whether the command's process group has a member; the only thing to go by outside Linux."""
    try:
        os.killpg(main, 0)
    except OSError:
        return False
    return not LINUX


def main() -> None:
    """Start the command, report, and wait for the order to stop."""
    grace, first, user = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    guard_pid = os.getpid()
    command = os.fork()
    if command == 0:
        become_command(guard_pid, user, sys.argv[4:])
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    print(f"pid {command}", flush=True)
    while True:
        code = reap(command)
        if code is not None:
            with contextlib.suppress(OSError):
                print(f"exit {code}", flush=True)
        ready = select.select([0, wake_read], [], [], 1.0)[0]
        signals = os.read(wake_read, 256) if wake_read in ready else b""
        if 0 in ready or set(signals) - {signal.SIGCHLD}:
            break
    stop(command, first, grace)
    os._exit(0)


if __name__ == "__main__":
    main()
