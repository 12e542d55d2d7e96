"""Makes the archive of Spark's classes, with which each Spark of this checkout starts sooner.

It takes 20 s, or minutes on a busy machine, and is optional: without it a Spark only starts slower. So the first run
that wants it starts a process that makes it and goes on when the run ends: `python -m sandbox.bootstrap.classes
beside`. Without the word, the command waits until the archive is made, also by another process: only one makes it at a
time. A killed process leaves no archive, and the next one begins anew.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.bootstrap.install import REQUIREMENTS, VENV, Stamp

JARS = STATE / "jars"
SPARK = CHECKOUT / "include" / "tidemark" / "spark"
STAMP = Stamp(JARS / "classes-stamp", REQUIREMENTS / "tidemark.lock", SPARK / "classes.py", SPARK / "jars.txt")
LOG = STATE / "logs" / "spark-classes.log"
# As in tidemark/spark/classes.py, which is not imported before the packages are there.
FILES = f"spark-classes-{version('pyspark')}-*"


def make_beside() -> None:
    """Make the archive in a process of low priority that goes on by itself, unless a current archive exists."""
    if _is_current():
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
    """Make the archive unless a current one exists. If Java made none, the next run that wants it tries again."""
    with (STATE / "classes.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_current():
            return
        for unfinished in JARS.glob(f"{FILES}/"):  # of a process that was killed
            shutil.rmtree(unfinished)
        if not STAMP.is_current():
            for older in JARS.glob("spark-classes-*.jsa"):  # also of other versions of PySpark
                older.unlink()
        command = [str(VENV / "bin" / "tidemark"), "spark", "classes"]
        environment = {**os.environ, "TIDEMARK_SPARK_JARS": str(JARS / "spark")}
        if subprocess.run(command, cwd=STATE, env=environment).returncode == 0:
            STAMP.write()


def _is_current() -> bool:
    """Return whether an archive for these packages exists. The command itself also checks Java, but takes a second."""
    return STAMP.is_current() and any(JARS.glob(f"{FILES}.jsa"))


if __name__ == "__main__":
    if sys.argv[1:] == ["beside"]:
        make_beside()
    else:
        os.nice(19 if sys.argv[1:] else 0)
        make()
