"""A topic of the toy source for a pipeline of a test."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.toys.toy_source.log import COMMITTED, PartitionLog, create_topic

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@dataclass
class ToyTopic:
    """Numbered records, round robin over the partitions, one a minute."""

    folder: Path
    name: str = "toys"
    partitions: int = 2
    produced: int = 0

    def __post_init__(self) -> None:
        self.create()

    def create(self) -> None:
        self.logs: list[PartitionLog] = create_topic(self.folder, self.name, self.partitions)

    def produce(self, count: int, *, bad_every: int = 0, fate: str = COMMITTED) -> None:
        for number in range(self.produced, self.produced + count):
            when = NOON + timedelta(minutes=number)
            value = json.dumps({"n": number, "at": when.isoformat(), "name": f"r{number}"})
            bad = bool(bad_every) and number % bad_every == 0
            self.logs[number % self.partitions].append("{" if bad else value, when, key=str(number), fate=fate)
        self.produced += count

    def source(self, **settings: Any) -> dict[str, Any]:
        """The section ``source`` of a pipeline file."""
        return {"toy": {"folder": str(self.folder), "topics": [self.name], **settings}}

    def everything(self) -> Counter[tuple[str, int, int]]:
        """Every place with a record."""
        return Counter((self.name, log.partition, line["offset"]) for log in self.logs for line in log.lines())
