"""The driver's face: what is in the folder."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.toys.toy_source.log import COMMITTED, PartitionLog
from tests.toys.toy_source.settings import Settings
from tidemark.connections.lookup import Lookup
from tidemark.errors import Unavailable
from tidemark.model.dataset import Dataset
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, OpenTransaction, Record
from tidemark.sources.base import Source


class ToySource(Source):
    """Topics in one folder."""

    title = "the toy folder"
    settings: Settings

    def __init__(self, pipeline_name: str, settings: Settings) -> None:
        super().__init__(pipeline_name, settings)
        self.address = settings.folder

    def dataset(self, topic: str) -> Dataset:
        return Dataset.of_folder(f"{self.address}/{topic}")

    def topics(self) -> list[str]:
        return sorted(path.parent.name for path in Path(self.address).glob("*/id"))

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        if not Path(self.address).is_dir():
            raise Unavailable(f"there is no folder {self.address}", next_step="mount it")
        there = set(self.topics())
        partitions = [
            TopicPartition(topic, Path(self.address, topic, "id").read_text(), int(file.stem))
            for topic in set(topics) & there
            for file in Path(self.address, topic).glob("*.jsonl")
        ]
        return sorted(partitions), sorted(set(topics) - there)

    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {place: self._log(place).bounds() for place in places}

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        return {place: self._first_at(place, when) for place in places}

    def _first_at(self, place: TopicPartition, when: datetime) -> tuple[int, datetime] | None:
        stamped = ((line["offset"], _moment(line)) for line in self._log(place).lines())
        return next(((offset, stamp) for offset, stamp in stamped if stamp >= when), None)

    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        return {place: held.log_start for place, held in bounds.items()}

    def open_transactions(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OpenTransaction]:
        held = {place: bound for place, bound in bounds.items() if bound.last_stable < bound.log_end}
        since = {
            place: next(
                (_moment(line) for line in self._log(place).lines() if line["offset"] == bound.last_stable), None
            )
            for place, bound in held.items()
        }
        return {
            place: OpenTransaction(place, bound.last_stable, bound.log_end - bound.last_stable, since[place])
            for place, bound in held.items()
        }

    def records(self, covered: Range) -> Iterator[Record]:
        at = covered.at
        log = self._log(at)
        if log.start > covered.start:
            raise Unavailable(f"offset {covered.start} is not there", next_step="plan again", topic=at.topic)
        for line in log.lines():
            if covered.start <= line["offset"] < covered.end and line["fate"] == COMMITTED:
                key, value = (None if line[name] is None else line[name].encode() for name in ("key", "value"))
                yield Record(at.topic, at.partition, line["offset"], line["timestamp"], key, value, None)

    def order(self) -> dict[str, Any]:
        return {"folder": self.address}

    def _log(self, place: TopicPartition) -> PartitionLog:
        return PartitionLog(Path(self.address, place.topic), place.partition)


def _moment(line: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(line["timestamp"] / 1000, UTC)


def open_source(pipeline_name: str, settings: Settings, lookup: Lookup) -> ToySource:
    return ToySource(pipeline_name, settings)
