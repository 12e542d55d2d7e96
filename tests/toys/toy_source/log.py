"""A topic as a folder of files, one per partition: what producers write and the source reads.

    <topic>/id                   the topic's id: one that was made again has another
    <topic>/<partition>.start    the first offset that is kept
    <topic>/<partition>.jsonl    one line per offset that holds a record, ascending:
                                 {"offset", "timestamp" (ms), "key", "value", "fate"}

``fate`` is ``committed``, ``aborted`` or ``open``, as the record's transaction. The log ends behind its last line.
"""

import json
import shutil
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from tidemark.model.partitions import Bounds

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
_IDS = count(1)


@dataclass(frozen=True)
class PartitionLog:
    """One partition of one topic."""

    folder: Path
    partition: int

    @property
    def lines_file(self) -> Path:
        return self.folder / f"{self.partition}.jsonl"

    @property
    def _start_file(self) -> Path:
        return self.folder / f"{self.partition}.start"

    @property
    def start(self) -> int:
        return int(self._start_file.read_text())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines_file.read_text().splitlines()]

    def bounds(self) -> Bounds:
        lines = self.lines()
        end = lines[-1]["offset"] + 1 if lines else self.start
        return Bounds(self.start, next((line["offset"] for line in lines if line["fate"] == OPEN), end), end)

    def append(self, value: str | None, when: datetime, *, key: str | None = None, fate: str = COMMITTED) -> int:
        """One record at the end of the log; its offset."""
        offset = self.bounds().log_end
        stamp = int(when.timestamp() * 1000)
        line = {"offset": offset, "timestamp": stamp, "key": key, "value": value, "fate": fate}
        with self.lines_file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return offset

    def end_transaction(self, fate: str) -> None:
        """Commit or abort what is open."""
        self._write([{**line, "fate": fate} if line["fate"] == OPEN else line for line in self.lines()], self.start)

    def delete_before(self, offset: int) -> None:
        """What retention does."""
        self._write([line for line in self.lines() if line["offset"] >= offset], offset)

    def _write(self, lines: list[dict[str, Any]], start: int) -> None:
        self._start_file.write_text(str(start))
        self.lines_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def create_topic(folder: Path, topic: str, partitions: int) -> list[PartitionLog]:
    """A new topic, in the place of one of that name."""
    shutil.rmtree(folder / topic, ignore_errors=True)
    (folder / topic).mkdir(parents=True)
    (folder / topic / "id").write_text(f"{topic}-{next(_IDS)}")
    logs = logs_of(folder, topic, partitions)
    for log in logs:
        log._write([], 0)
    return logs


def logs_of(folder: Path, topic: str, partitions: int) -> list[PartitionLog]:
    return [PartitionLog(folder / topic, partition) for partition in range(partitions)]
