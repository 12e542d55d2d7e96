"""Finds the offsets before a range that ``dedupe`` with ``within`` must read. They depend on the log alone, so every
attempt at a manifest gets the same ones.

They begin at the first record that is at most ``within`` older than the first record of the range. They do not reach
back beyond the first generation of the log, nor beyond offsets that were given up: nothing before was published.
Records that the log lost when it was cut cannot be read, and no longer count.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from tidemark.database.statements import Row
from tidemark.errors import DataLost, Unavailable
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.logs.generations import generations_of, start_of
from tidemark.model.manifest import Manifest
from tidemark.model.offsets import Range
from tidemark.model.partitions import EPOCH, rounded_duration


def looked_back(context: Context, manifest: Manifest, within: timedelta) -> tuple[Range, ...]:
    """Return the offsets to read before the ranges of a manifest.

    Raises ``DataLost`` if the source no longer holds all of them.
    """
    database = context.database
    begins = {
        at: start_of(generations)
        for at, generations in generations_of(database, database.chains.of_manifest(manifest.id)).items()
    }
    lost = database.ranges.lost(context.pipeline_name, None)
    first = context.source.records_from([(covered.at, covered.start) for covered in manifest.ranges])
    before = []
    for covered in manifest.ranges:
        if (covered.at, covered.start) not in first:
            raise Unavailable(
                "the source did not return the first record of a range in time: transform.dedupe.within needs its "
                "timestamp",
                next_step=f"check that the source answers, then: tidemark retry {context.pipeline_name}",
                **covered.context,
            )
        record = first[covered.at, covered.start]
        floor = _floor(covered, begins[covered.at], lost)
        if record is None or record.offset >= covered.end or floor == covered.start:
            continue
        if record.stamped_at is None or record.stamped_at < EPOCH:
            continue
        since = record.stamped_at - within
        start = max(floor, _begin(context, covered, floor, since))
        if start < covered.start:
            before.append(replace(covered, start=start, end=covered.start))
    return tuple(before)


def _floor(covered: Range, begin: int, lost: Iterable[Row]) -> int:
    """Return the lowest offset at which the look back may begin; the log's first generation starts at ``begin``."""
    place = (covered.at.topic_id, covered.at.partition)
    of_log = (_part_in_log(row) for row in lost if (row["topic_id"], row["partition"]) == place)
    return max([begin, *(end for start, end in of_log if start < end <= covered.start)])


def _part_in_log(lost: Row) -> tuple[int, int]:
    """Return the part of lost offsets that lies below the end of their generation."""
    start, end, generation_end = lost["start_offset"], lost["end_offset"], lost["generation_end"]
    return start, end if generation_end is None else min(end, generation_end)


def _begin(context: Context, covered: Range, floor: int, since: datetime) -> int:
    """Return the offset of the first record that is not older than ``since``."""
    source = context.source
    answer = source.offsets_at([covered.at], since)[covered.at]
    if answer is None:  # all records of the log are older
        return covered.start
    offset, first = answer
    log_start = source.bounds([covered.at])[covered.at].log_start
    if log_start <= floor or offset > log_start:  # an older record is still there, so all later ones are
        return offset
    raise DataLost(
        f"dedupe looks back to {since:%Y-%m-%d %H:%M:%S} UTC, and retention took records of that time: offsets "
        f"[{floor}, {log_start}) are gone, and {log_start} was written {rounded_duration(first - since)} later",
        next_step="nothing changes: what is published stays. Let the source keep records for longer than within; for "
        f"this manifest write a shorter within, then: tidemark retry {context.pipeline_name}",
        **covered.context,
    )
