"""Lanes: the chain of each partition, with the parts that are not done."""

from dataclasses import dataclass
from datetime import datetime

from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import PublishedRange
from tidemark.model.partitions import moment_of
from tidemark.operations.known_damage import Damage

WITH_LETTERS = 100  # manifests whose dead letters are shown; their receipts, or files, must be read


@dataclass(frozen=True)
class PartView:
    """Offsets ``[start, end)`` of a lane that are not done: planned, running, abandoned (the process is dead), failed,
    blocked or lost; or that are done and damaged, or unknown because an audit found more than it kept.

    A part joins adjacent ranges in one state, and in a picture also ranges that are close to each other. ``manifests``
    and ``offsets`` count what is in this state. ``first_manifest`` is None for lost offsets.
    """

    start: int
    end: int
    state: str
    first_manifest: int | None
    manifests: int
    offsets: int


@dataclass(frozen=True)
class LettersPartView:
    """Offsets ``[start, end)`` of one manifest in a lane; ``records`` is the number of dead letters in them."""

    start: int
    end: int
    records: int
    manifest_id: int


@dataclass(frozen=True)
class LaneView:
    """The chain of one partition, offsets ``[start, end)``: done, except its ``parts``.

    ``last_record_at`` is the source's timestamp of the newest published record; None without one. ``retired``: its log
    generation has ended. ``blocked`` says why nothing more is planned until you decide. ``cut`` is true if the reason
    is that the log was truncated; otherwise the topic is another one or no longer exists. ``dead_letters`` are those of
    the newest 100 manifests of the pipeline that have some.
    """

    topic: str
    topic_id: str
    partition: int
    generation: int
    retired: bool
    blocked: str | None
    cut: bool
    start: int
    end: int
    last_record_at: datetime | None
    parts: tuple[PartView, ...]
    dead_letters: tuple[LettersPartView, ...] = ()


def lane_views(database: ManifestDatabase, pipeline_name: str, cells: int | None = None) -> list[LaneView]:
    """Return the chains of a pipeline by topic and partition, an older log generation before the newer one. With
    ``cells`` a chain has at most so many parts of each state, for any number of manifests."""
    damage = Damage.of_pipeline(database, pipeline_name)
    parts: dict[int, list[PartView]] = {}
    for row in database.ranges.not_done(pipeline_name, sorted(damage.of_manifest), cells):
        parts.setdefault(row.pop("chain_id"), []).append(PartView(**row))
    letters: dict[int, list[LettersPartView]] = {}
    for row in database.ranges.with_dead_letters(pipeline_name, WITH_LETTERS):
        letters.setdefault(row.pop("chain_id"), []).append(LettersPartView(**row))
    lanes = database.chains.lanes(pipeline_name)
    for lane in lanes if damage.unnamed else []:
        start, end, known = lane["anchor"], lane["end_offset"], parts.setdefault(lane["id"], [])
        if done := end - start - sum(part.offsets for part in known):
            known.append(PartView(start, end, "unknown", None, 0, done))
    newest = database.ranges.newest_published([(lane["id"], lane["end_offset"]) for lane in lanes])[0]
    return [
        LaneView(
            lane["topic"], lane["topic_id"], lane["partition"], lane["generation"], lane["retired"], lane["blocked"],
            lane["cut"], lane["anchor"], lane["end_offset"], _stamp(newest.get(lane["id"])),
            tuple(parts.get(lane["id"], ())), tuple(letters.get(lane["id"], ())),
        )
        for lane in lanes
    ]  # fmt: skip


def _stamp(published: PublishedRange | None) -> datetime | None:
    """Return the timestamp of the last record of a published range; None without a range, and for a record without a
    timestamp."""
    return None if published is None else moment_of(published.last.timestamp_ms)
