"""Finds the offsets at which reading begins in a topic that replaces an older topic of the same name.

The new topic may be empty, or a copy of the old one, made by a mirror or restored from a backup. A copy holds records
that are published already, at the same offsets or at others. So the last published record of each partition is looked
for. If the new log has it at the same offset, reading begins after it. If all records of the new log are newer than the
published ones, reading begins at offset 0. Otherwise you must name the offsets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tidemark.errors import PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.logs.divergence import Answers, Published, differs
from tidemark.model.manifest import PublishedRange, count_of
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import Bounds, moment_of
from tidemark.planner import Chain

_EPOCH = datetime.fromtimestamp(0, UTC)
_A_MILLISECOND = timedelta(milliseconds=1)  # the unit of a record's timestamp


@dataclass(frozen=True)
class Begin:
    """A point that you named for reading to begin: an offset, or the first record from a time on.

    ``partition`` is None for all partitions that no other ``Begin`` names.
    """

    at: int | datetime
    partition: int | None = None


@dataclass(frozen=True)
class NewStart:
    """The offset at which reading begins in a partition of the new topic; ``line`` says why."""

    at: TopicPartition
    offset: int
    line: str


def starts_in(
    context: Context, chains: Sequence[Chain], places: Sequence[TopicPartition], named: Sequence[Begin]
) -> list[NewStart]:
    """Return where to begin in each of ``places``, the partitions of the new topic; ``chains`` are those of the old
    one.

    Raises ``PlanRefused`` if a named offset lies outside the log. Also if no offset is named, and the new log may hold
    published records at other offsets.
    """
    source, logs = context.source, context.source.bounds(places)
    known, _ = Published(context.database, chains).newest_and_empty()
    of_partition = {at.partition: part for at, part in known.items()}
    older = _older(context, logs, of_partition)
    answers = source.records_from(
        [
            (at, of_partition[at.partition].last.offset)
            for at, log in logs.items()
            if at.partition in of_partition and log.log_start <= of_partition[at.partition].last.offset < log.log_end
        ]
    )
    starts: list[NewStart] = []
    wrong: list[str] = []
    for at, log in sorted(logs.items()):
        part = of_partition.get(at.partition)
        begin = _named(context, at, log, named)
        if begin is not None:
            starts.append(NewStart(at, begin, _start_line(at, begin, f"as you say; {_counted(older[at], log)}")))
        elif part is not None and _is_the_same(part, at, answers):
            starts.append(
                NewStart(
                    at, part.end, _start_line(at, part.end, "behind the last published record, which the new log has")
                )
            )
        elif not older[at]:
            starts.append(
                NewStart(at, 0, _start_line(at, 0, "no record of the new log is older than what is published"))
            )
        else:
            wrong.append(f"{at.name} {_counted(older[at], log)}")
    if wrong:
        newest = _newest(of_partition)
        raise PlanRefused(
            f"the new topic may hold published records again, at other offsets: {'; '.join(wrong)}",
            next_step=f"nothing was decided; say where reading begins: --from {newest.isoformat()} for what is newer "
            "than the last published record, --from PARTITION:OFFSET for each partition, or --from 0 to read all; "
            "--dry-run shows what that means",
            topic=places[0].topic,
        )
    return starts


def _start_line(at: TopicPartition, offset: int, why: str) -> str:
    return f"{at.name}: reading begins at offset {offset} of the new topic: {why}"


def _counted(older: int, log: Bounds) -> str:
    return (
        f"{count_of(older, 'offset')} of the {log.log_end - log.log_start:,} in the new log are not newer than what is "
        "published"
    )


def _is_the_same(part: PublishedRange, at: TopicPartition, answers: Answers) -> bool:
    """Return whether the new log has the last published record at its offset. Leader epochs of another log prove
    nothing.
    """
    record = answers.get((at, part.last.offset))
    return record is not None and not differs(replace(part.last, leader_epoch=None), record, may_vanish=False)


def _newest(known: Mapping[int, PublishedRange]) -> datetime:
    """Return the time just after the newest of the last published records."""
    moments = (moment_of(part.last.timestamp_ms) for part in known.values())
    return max((moment for moment in moments if moment is not None), default=_EPOCH) + _A_MILLISECOND


def _older(
    context: Context, logs: Mapping[TopicPartition, Bounds], known: Mapping[int, PublishedRange]
) -> dict[TopicPartition, int]:
    """Count the offsets of each log that lie before the first record that is newer than what is published."""
    if not known:
        return dict.fromkeys(logs, 0)
    first = context.source.offsets_at(sorted(logs), _newest(known))
    return {
        at: (log.log_end if (answer := first.get(at)) is None else max(answer[0], log.log_start)) - log.log_start
        for at, log in logs.items()
    }


def _named(context: Context, at: TopicPartition, log: Bounds, named: Sequence[Begin]) -> int | None:
    """Return the offset that was named for a partition, or None. A name for this partition alone comes before one for
    all.
    """
    own = [begin.at for begin in named if begin.partition == at.partition]
    for begin in [*own, *(begin.at for begin in named if begin.partition is None)]:
        if isinstance(begin, datetime):
            answer = context.source.offsets_at([at], begin).get(at)
            return log.log_end if answer is None else max(answer[0], log.log_start)
        if begin and not log.log_start <= begin <= log.log_end:
            raise PlanRefused(
                f"{at.name} holds offsets from {log.log_start} to {log.log_end}, and not {begin}",
                next_step="nothing was decided; give --from an offset that it holds, or a time",
                **at.context,
            )
        return begin
    return None
