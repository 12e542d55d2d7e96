"""Makes the archive of Spark's classes, with which each Spark of this checkout starts sooner.

It takes 20 s, or minutes on a busy machine, and nothing needs it: a Spark that finds none starts without. So the first
run that wants it has it made beside itself, by a process that goes on when the run ends: `python -m
sandbox.bootstrap.classes beside`. Without the word the command waits, also for one that is at work: only one process
makes it at a time. One that is killed leaves no archive, and the next begins anew.
"""

import fcntl
import os
import shutil
import subprocess
import sys

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.install import REQUIREMENTS, VENV, Stamp

JARS = STATE / "jars"
STAMP = Stamp(JARS / "classes-stamp", REQUIREMENTS / "tidemark.lock")
LOG = STATE / "logs" / "spark-classes.log"
FILES = "spark-classes-*"  # as in tidemark/spark/classes.py, which is not imported before the packages are there


def make_beside() -> None:
    """Make the archive in a process of low priority that goes on by itself, unless there is one that fits."""
    if _is_there():
        return
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-m", "sandbox.bootstrap.classes", "at the lowest priority"],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def make() -> None:
    """Return when there is an archive that fits, or when Java has made none; the next run that wants it tries again."""
    with (STATE / "classes.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_there():
            return
        for left in JARS.glob(f"{FILES}/"):  # of a process that was killed
            shutil.rmtree(left)
        command = [str(VENV / "bin" / "tidemark"), "spark", "classes"]
        environment = {**os.environ, "TIDEMARK_SPARK_JARS": str(JARS / "spark")}
        if subprocess.run(command, cwd=STATE, env=environment).returncode == 0:
            STAMP.write()


def _is_there() -> bool:
    """Whether there is one for these packages; the command itself looks at Java, too, but takes a second."""
    return STAMP.is_current() and any(JARS.glob(f"{FILES}.jsa"))


if __name__ == "__main__":
    if sys.argv[1:] == ["beside"]:
        make_beside()
    else:
        os.nice(19 if sys.argv[1:] else 0)
        make()
