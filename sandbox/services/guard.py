"""Runs a command and stops it with everything that it started: `python guard.py GRACE SIGNAL USER COMMAND...`.

`processes.py` starts this file, with the standard library only. The guard is the *subreaper* of the command: a process
that loses its parent, or moves to another group or session (as Airflow's tasks and Spark do), stays below the guard.
When the guard's stdin closes, it stops the whole tree: SIGNAL (a number) to the command's group, and after GRACE
seconds SIGKILL to the rest. The kernel closes stdin even when the guard's parent is killed with SIGKILL. USER runs the
command without root's rights ("-" keeps them). On stdout the guard prints `pid N` and later `exit N`.

When the command ends by itself, the guard leaves its children alone: a test can kill a scheduler and keep its tasks.
Outside Linux there is neither subreaper nor /proc, and the guard stops only the command's process group.
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
    """Call the system call `prctl`; do nothing outside Linux."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_command(guard_pid: int, user: str, command: list[str]) -> None:
    """Replace the forked child by the command; never returns."""
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        if user != "-":
            account = pwd.getpwnam(user)
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
        # The kernel sends this signal when the guard is killed. Set it after setuid, which clears it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard_pid:
            os._exit(1)
        os.execvp(command[0], command)  # noqa: S606 -- a list made by us, as everywhere
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    os._exit(127)


def descendants() -> list[int]:
    """Return every process below this one, from /proc; none outside Linux."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*") if LINUX else ():
        with contextlib.suppress(OSError):
            # "pid (name) state ppid ..": the name may hold spaces and brackets, so split after the last bracket.
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    below: list[int] = []
    parents = [os.getpid()]
    while parents:
        pids = children.get(parents.pop(), [])
        below += pids
        parents += pids
    return below


def reap(main: int) -> int | None:
    """Collect ended children. Return the command's exit code if it has ended (128 + signal after a signal), else
    None.
    """
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
    """Stop the whole tree and return when it has ended."""
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
    """Return whether the command's process group has a member; only outside Linux, where ``descendants`` finds
    nothing.
    """
    try:
        os.killpg(main, 0)
    except OSError:
        return False
    return not LINUX


def main() -> None:
    """Start the command, print its pid and exit code, and wait until stdin closes or a signal comes."""
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
