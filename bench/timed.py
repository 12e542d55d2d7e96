"""Runs one contender in a new process and measures it from outside."""

import contextlib
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from bench.records import HOURS
from sandbox.errors import SandboxFailed, WrongResult

SAMPLE_S = 0.1  # between two samples of processor time
MEMORY_SAMPLES = 3  # samples of processor time for one of memory, which takes some milliseconds
TIMEOUT_S = 900
MIB = 1 << 20


@dataclass(frozen=True)
class Timing:
    """One run, in seconds. ``whole``: from the start of the process to its end. ``session``: from the start until Spark
    or Flink takes a job. ``job``: from there to the end of its work. ``publish`` (Tidemark only): from there to the
    end.

    ``cpu`` is processor time, which other load on the machine changes less than ``whole``. ``memory`` is the highest
    sum of the memory of the process and all below it, in bytes; a page that processes share counts only once in total.
    If a server did the work, both include its share.

    ``rows_of_files`` and ``bytes_of_files`` are those of the smallest file, the median and the largest; empty without
    files.
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


def timed(
    kind: str,
    command: Sequence[str],
    task: dict[str, Any],
    folder: Path,
    environment: dict[str, str],
    expected: int | None,
    server: int | None = None,
    folders: int = HOURS,
) -> Timing:
    """Run a contender: ``command``, with the file of the task as its last word. ``server`` is the process id of a
    server that stays up and does the work.

    Raises ``WrongResult`` unless the Parquet files have ``expected`` rows (None: the contender writes no files) in
    ``folders`` folders, by default one for each event hour.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "task.json"
    task = {**task, "marks": str(folder / "marks.json"), "log": str(folder / "spark.log")}
    file.write_text(json.dumps(task))
    log = folder / "output.log"
    began = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen([*command, str(file)], env=environment, stdout=output, stderr=output)
        try:
            peak, cpu = watched(process, server)
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
        _check(kind, paths, rows, expected, folders)
    publish = marks["done"] - marks["staged"]
    return Timing(
        whole, marks["session"], marks["staged"] - marks["session"], publish, cpu, peak, len(sizes), sum(sizes),
        _spread(rows), _spread(sizes),
    )  # fmt: skip


def _spread(values: list[int]) -> list[int]:
    """Return the smallest, the median and the largest value; nothing without values."""
    return [min(values), int(statistics.median(values)), max(values)] if values else []


def watched(process: subprocess.Popen[bytes], server: int | None) -> tuple[int, float]:
    """Wait for a process. Return its peak memory in bytes and its processor time in seconds, including those of a
    server.

    The process is killed after ``TIMEOUT_S``. Processor time after the last sample of a process is lost, also of
    processes below it: at most ``SAMPLE_S`` for each.
    """
    peak = 0
    used: dict[int, float] = {}
    before = processor_seconds(server) if server else 0.0
    deadline = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    samples = count()
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
        _sample(process.pid, used)
        if next(samples) % MEMORY_SAMPLES == 0:
            peak = max(peak, _memory(process.pid) + (_memory(server) if server else 0))
        pause.wait(SAMPLE_S)
    return peak, sum(used.values()) + (processor_seconds(server) - before if server else 0.0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all below it, after an error or an interrupt."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


def _sample(pid: int, used: dict[int, float]) -> None:
    """Store the processor time so far of a process and of all below it in ``used``, by process id."""
    for member in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = member.cpu_times()
            used[member.pid] = times.user + times.system


def _memory(pid: int) -> int:
    """Return the present memory of a process and all below it, in bytes."""
    total = 0
    for member in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += member.memory_full_info().pss
    return total


def processor_seconds(pid: int) -> float:
    """Return the processor time so far of a process and all below it, including children that have ended."""
    total = 0.0
    for member in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(member.cpu_times()[:4])  # user, system, and both of children that it has waited for
    return total


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all below it; an empty list if it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _files(output: Path) -> list[Path]:
    """Return the files that a reader of folders opens."""
    paths = output.rglob("*.parquet")
    return [path for path in paths if not any(part[0] in "_." for part in path.relative_to(output).parts)]


def _check(kind: str, paths: list[Path], rows: list[int], expected: int, folders: int) -> None:
    written = len({path.parent for path in paths})
    if (sum(rows), written) != (expected, folders):
        raise WrongResult(
            f"{kind} wrote {sum(rows):,} rows of {expected:,} into {written} folders of {folders}",
            next_step="look at its output in this moment; it is removed at the end",
        )
