"""A transform that makes each batch of a task slow and changes no row. A file shows that a task is in the middle of a
batch."""

from tests.worlds.world import World

MARK = "at-work"
CODE = """
import os
import time
from pathlib import Path

import pyarrow as pa

def wait(rows: pa.RecordBatch) -> pa.RecordBatch:
    Path(f"MARKED-{os.getpid()}").touch()
    time.sleep(SECONDS)
    return rows
"""


def slow(world: World, seconds: int) -> None:
    """From here on each batch takes so long."""
    code = world.pipelines / "code"
    code.mkdir(exist_ok=True)
    (code / "slow.py").write_text(CODE.replace("SECONDS", str(seconds)).replace("MARKED", str(world.folder / MARK)))
    world.settings |= {"code": str(code), "transform": [{"python": "slow:wait"}]}
    world.write_pipeline()


def at_work(world: World, tasks: int = 1) -> bool:
    """Whether so many tasks, which are processes, have begun a batch."""
    return len(list(world.folder.glob(f"{MARK}-*"))) >= tasks
