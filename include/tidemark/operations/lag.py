"""How far a pipeline is behind its source."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.lifecycle.context import Context
from tidemark.offsets import TopicPartition


@dataclass(frozen=True)
class Lag:
    """One partition: ``lag`` offsets are not planned yet, ``unpublished`` are planned and not published."""

    topic: str
    partition: int
    log_start: int
    planned: int
    last_stable: int
    log_end: int
    unpublished: int
    open_transaction: str | None  # what holds ``last_stable`` below ``log_end``, and since when

    @property
    def lag(self) -> int:
        return max(0, self.last_stable - self.planned)


def lag(context: Context) -> list[Lag]:
    """How far each partition's chain is behind the source; without a chain all offsets from the log start count."""
    places, missing = context.source.partitions(context.source.selected())
    if missing:
        raise context.source.missing_topic(missing[0])
    ends = {chain.at: chain.end for chain in context.database.chains(context.pipeline_name)}
    unpublished: Counter[TopicPartition] = Counter()
    for manifest in context.database.undone(context.pipeline_name):
        for range_ in manifest.ranges:
            unpublished[range_.at] += range_.span
    bounds = context.source.bounds(places)
    now = datetime.now(UTC)
    transactions = context.source.open_transactions(bounds)
    held = {place: transaction.described(now) for place, transaction in transactions.items()}
    return [
        Lag(
            place.topic, place.partition, log.log_start, ends.get(place, log.log_start), log.last_stable, log.log_end,
            unpublished[place], held.get(place),
        )
        for place, log in sorted(bounds.items())
    ]  # fmt: skip
