import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.failpoints import FAILPOINTS, failpoint, watching

REACH = """
from tidemark.failpoints import failpoint
for _ in range(3):
    failpoint("publish.mid")
print("lived")
"""


def reach(home: Path, armed: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TIDEMARK_HOME": str(home)}
    environment.pop("TIDEMARK_FAILPOINT", None)
    if armed:
        environment["TIDEMARK_FAILPOINT"] = armed
    return subprocess.run(
        [sys.executable, "-c", REACH],
        env=environment,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=30,
    )


def test_unset_nothing_happens(tmp_path: Path) -> None:
    assert reach(tmp_path, None).stdout == "lived\n"


def test_kill9_kills_once_per_state_folder(tmp_path: Path) -> None:
    assert reach(tmp_path, "publish.mid:kill9").returncode == -signal.SIGKILL
    assert reach(tmp_path, "publish.mid:kill9").stdout == "lived\n"


def test_always_kills_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        assert reach(tmp_path, "publish.mid:kill9@always").returncode == -signal.SIGKILL


def test_a_pass_that_is_never_reached_does_nothing(tmp_path: Path) -> None:
    assert reach(tmp_path, "publish.mid:kill9@4").stdout == "lived\n"
    assert reach(tmp_path, "publish.mid:kill9@3").returncode == -signal.SIGKILL


def test_raise_raises_at_its_own_point_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_FAILPOINT", "publish.mid:raise")
    failpoint("publish.marked")
    with pytest.raises(WorkFailed, match=r"publish\.mid"):
        failpoint("publish.mid")


@pytest.mark.parametrize("text", ["publish.mid", "publish.middle:kill9", "publish.mid:explode", "publish.mid:kill9@x"])
def test_a_wrong_failpoint_says_what_is_allowed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_FAILPOINT", text)
    with pytest.raises(ConfigurationError) as wrong:
        failpoint("publish.mid")
    assert all(name in str(wrong.value) for name in FAILPOINTS)


def test_no_thread_watches_when_not_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_FAILPOINT", raising=False)
    before = {*threading.enumerate()}  # those of earlier tests may end meanwhile
    with watching("stage.mid", lambda: True):
        assert {*threading.enumerate()} <= before
