"""Named places where a test may kill the process that reaches them.

``TIDEMARK_FAILPOINT=publish.mid:kill9`` kills the whole process group that reaches ``publish.mid``; ``stop`` sends
SIGSTOP, ``raise`` raises, ``hang:SECONDS`` waits. ``publish.mid:kill9@3`` acts at the third pass, ``@always`` at each.
Without ``@always`` it acts once per state folder (``TIDEMARK_HOME``): the first process that reaches it creates a file
there, and the retry and the other mapped tasks go on. When the variable is not set, a pass is one dictionary look-up.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import ConfigurationError, WorkFailed

VARIABLE = "TIDEMARK_FAILPOINT"

FAILPOINTS = (
    "plan.before_commit",
    "plan.after_commit",
    "attempt.started",
    "read.before",
    "stage.mid",
    "stage.done",
    "publish.receipt",
    "publish.mid",
    "publish.before_record",
    "publish.before_mark",
    "publish.marked",
    "publish.cleaned",
)
# A run passes them at its end, outside of any manifest: once, or once for each success file.
FAILPOINTS_OF_HOURS = ("hours.before_commit", "hours.after_commit", "hours.before_success")
# An attempt passes it when its driver works on, and its process ends.
FAILPOINTS_OF_DEFERRALS = ("attempt.deferred",)
# Before each version of the tables that `tidemark db migrate` makes.
FAILPOINTS_OF_TABLES = ("migrate.before_commit",)
# `tidemark rename pipeline` passes them, outside of any manifest.
FAILPOINTS_OF_RENAMES = (
    "rename.before_commit",
    "rename.after_commit",
    "rename.mid",
    "rename.in_target",
    "rename.before_end",
)
_NAMES = (
    *FAILPOINTS,
    *FAILPOINTS_OF_HOURS,
    *FAILPOINTS_OF_DEFERRALS,
    *FAILPOINTS_OF_TABLES,
    *FAILPOINTS_OF_RENAMES,
)
_GRAMMAR = re.compile(r"(?P<name>[a-z_.]+):(?P<action>kill9|stop|raise|hang:[0-9.]+)(?:@(?P<passes>[0-9]+|always))?")
_passes: dict[str, int] = {}


@dataclass(frozen=True)
class _Armed:
    name: str
    action: str
    at_pass: int
    always: bool


def _armed() -> _Armed | None:
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    match = _GRAMMAR.fullmatch(text)
    if match is None or match["name"] not in _NAMES:
        raise ConfigurationError(
            f"{VARIABLE}={text} is not a failpoint with an action",
            next_step="write NAME:kill9|stop|raise|hang:SECONDS with NAME one of " + ", ".join(_NAMES),
        )
    passes = match["passes"]
    always = passes == "always"
    return _Armed(match["name"], match["action"], 1 if always or passes is None else int(passes), always)


def _claimed(armed: _Armed) -> bool:
    if armed.always:
        return True
    folder = Path(os.environ.get("TIDEMARK_HOME", "."), "_failpoints")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / f"{armed.name}-{armed.action.replace(':', '-')}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def failpoint(name: str) -> None:
    """Die, stop, raise or wait here if the environment says so; ``WorkFailed`` for the action ``raise``."""
    if VARIABLE in os.environ:
        _reach(name)


def _reach(name: str) -> None:
    armed = _armed()
    if armed is None or armed.name != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] < armed.at_pass or not _claimed(armed):
        return
    match armed.action:
        case "kill9":
            os.killpg(os.getpgid(0), signal.SIGKILL)
            time.sleep(60)
        case "stop":
            os.killpg(os.getpgid(0), signal.SIGSTOP)
        case "raise":
            raise WorkFailed(f"failpoint {name} raised", next_step=f"unset {VARIABLE}")
        case hang:
            time.sleep(float(hang.removeprefix("hang:")))


def watching(name: str, reached: Callable[[], bool]) -> AbstractContextManager[None]:
    """Hit a failpoint from a second thread as soon as ``reached()`` is true, while the block runs."""
    return _watching(name, reached) if VARIABLE in os.environ else nullcontext()


@contextmanager
def _watching(name: str, reached: Callable[[], bool]) -> Iterator[None]:
    armed = _armed()
    if armed is None or armed.name != name:
        yield
        return
    finished = threading.Event()
    raised: list[WorkFailed] = []

    def watch() -> None:
        ended = False
        while not ended:
            ended = finished.wait(0.02)  # then look once more: the block may end before the first look
            if reached():
                try:
                    failpoint(name)
                except WorkFailed as failure:
                    raised.append(failure)
                return

    watcher = threading.Thread(target=watch, name=f"failpoint-{name}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
    if raised:
        raise raised[0]
