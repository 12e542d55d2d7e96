"""Runs one contender in a new process and measures it from outside."""

import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from sandbox.errors import SandboxFailed, WrongResult

SAMPLE_S = 0.1
TIMEOUT_S = 900
MIB = 1 << 20


@dataclass(frozen=True)
class Timing:
    """One run, in seconds. ``whole``: from the start of the process to its end. ``session``: from the start until Spark
    takes a job. ``job``: from there to the end of Spark's work. ``publish`` (Tidemark only): from there to the end.

    ``cpu`` is processor time, which other load on the machine changes less than ``whole``. ``memory`` is the highest
    sum of resident memory of the process and all below it, in bytes; pages that processes share are counted in each.
    ``rows_of_files`` and ``bytes_of_files`` are of the smallest file, the median and the largest; empty without files.
    """

    whole: float
    session: float
    job: float
    publish: float
    cpu: float
    memory: int
    files: int
    bytes: int
    rows_of_files: list[int]
    bytes_of_files: list[int]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def timed(kind: str, task: dict[str, Any], folder: Path, environment: dict[str, str], expected: int | None) -> Timing:
    """Run a contender; ``WrongResult`` unless its Parquet files have ``expected`` rows (None: it writes no files)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "task.json"
    task = {**task, "marks": str(folder / "marks.json"), "log": str(folder / "spark.log")}
    file.write_text(json.dumps(task))
    log = folder / "output.log"
    began = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.contender", kind, str(file)], env=environment, stdout=output, stderr=output
        )
        try:
            peak, cpu = _watched(process)
        finally:
            _end(process)
    whole = time.time() - began
    if process.returncode != 0:
        raise SandboxFailed(f"{kind} ended with {process.returncode}\n{log.read_text()[-3000:]}", next_step=str(log))
    marks = {name: at - began for name, at in json.loads(Path(task["marks"]).read_text()).items()}
    paths = _files(Path(task["output"]))
    sizes = [path.stat().st_size for path in paths]
    rows = [pq.read_metadata(path).num_rows for path in paths]
    if expected is not None:
        _check_rows(kind, Path(task["output"]), expected)
    publish = marks["done"] - marks["staged"] if kind == "tidemark" else 0.0
    return Timing(
        whole, marks["session"], marks["staged"] - marks["session"], publish, cpu, peak, len(sizes), sum(sizes),
        _spread(rows), _spread(sizes),
    )  # fmt: skip


def _spread(values: list[int]) -> list[int]:
    """The smallest, the median and the largest; nothing of nothing."""
    return [min(values), int(statistics.median(values)), max(values)] if values else []


def _watched(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """The peak memory in bytes and the processor time in seconds, when a process has ended.

    It is killed after ``TIMEOUT_S``. Processor time after the last sample of a process is lost: at
    most ``SAMPLE_S`` for each.
    """
    peak = 0
    used: dict[int, float] = {}
    deadline = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        peak = max(peak, _sample(process.pid, used))
        pause.wait(SAMPLE_S)
    return peak, sum(used.values())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all below it, after an error or an interrupt."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


def _sample(pid: int, used: dict[int, float]) -> int:
    """The memory of a process and all below it now. Stores their processor time so far in ``used``, by process id."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for member in family:
        try:
            total += member.memory_info().rss
            times = member.cpu_times()
            used[member.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _files(output: Path) -> list[Path]:
    """The files that a reader of folders opens."""
    paths = output.rglob("*.parquet")
    return [path for path in paths if not any(part[0] in "_." for part in path.relative_to(output).parts)]


def _check_rows(kind: str, output: Path, expected: int) -> None:
    rows = sum(pq.read_metadata(path).num_rows for path in _files(output))
    if rows != expected:
        raise WrongResult(f"{kind} wrote {rows:,} rows of {expected:,}", next_step=f"look into {output}")
