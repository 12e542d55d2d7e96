"""What `make run` prints of the lake."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandbox.demo.lake_counts import count, listed
from sandbox.demo.report import Report
from sandbox.demo.run import Demo
from sandbox.services.clock import Clock
from sandbox.services.stack import Stack

ROWS = 10


def publish(lake: Path, manifest: int) -> str:
    """One file of a slice, as Tidemark lays it; its path."""
    path = lake / "raw" / "flights" / "2013" / f"{manifest}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    offsets = range(manifest * ROWS, (manifest + 1) * ROWS)
    rows = [{"_topic": "flights", "_partition": 0, "_offset": offset, "_manifest_id": manifest} for offset in offsets]
    pq.write_table(pa.Table.from_pylist([{**row, "carrier": "UA", "origin": "EWR"} for row in rows]), path)
    return str(path)


def tasks(*states: str) -> list[dict[str, Any]]:
    """What Airflow says of the mapped tasks."""
    return [{"task_id": "process", "map_index": index, "state": state} for index, state in enumerate(states)]


def test_slices_and_rows_are_of_one_moment_however_late_airflow_says_that_a_task_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = Demo(Stack(tmp_path, Clock()), Report())
    paths: list[str] = []
    monkeypatch.setattr(demo, "_tidemark", lambda *_: json.dumps([{"path": path} for path in paths]))

    paths[:] = [publish(demo.lake, 1), publish(demo.lake, 2)]
    publish(demo.lake, 3)  # a listing shows it, and it is not published yet
    demo._progress(tasks("success", "running", "running"))
    demo._progress(tasks("success", "success", "running"))
    paths.append(publish(demo.lake, 3))
    demo._progress(tasks("success", "success", "success"))
    printed = [line.strip() for line in capsys.readouterr().out.splitlines() if "published" in line]
    assert printed == [
        "2 slices published: 20 flights in 2 files, 20 distinct",
        "3 slices published: 30 flights in 3 files, 30 distinct",
    ]
    assert [(counts.slices, counts.rows) for _, _, counts in demo.moments] == [(2, 20), (3, 30)]


def test_a_file_that_goes_while_it_is_counted_is_not_asked_for_again(tmp_path: Path) -> None:
    kept = publish(tmp_path, 1)
    answers = [[kept, str(tmp_path / "gone.parquet")], [kept]]
    counts = count(lambda: answers.pop(0))
    assert (counts.files, counts.rows, counts.slices) == (1, ROWS, 1)
    assert listed(tmp_path) == [kept]
