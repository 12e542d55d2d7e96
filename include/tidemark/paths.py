"""Paths below a lake root: all of them are built and parsed here.

    <folder of the layout>/<manifest>-a<attempt>-p<partition>-<start>-<end>-<part>.<format>     data
    _dead_letters/<stream>/<the same name>                                                      dead letters
    _manifests/<pipeline>/<manifest>.<attempt>.json                                             records
    <folder of the layout>/_SUCCESS                                                             a complete hour
    _manifests/_owner.json                                                                      the owning database
    _staging/<manifest>/<attempt>/                                                              staging of one attempt

A sink that stages outside of its target shares the staging folder with other sinks. There each sink has a root of its
own, ``<pipeline>.<sink>``, with ``_staging``, ``_dead_letters`` and the owning database below it as in a lake.

Numbers have fixed widths, so names sort as numbers. Offsets are those of the manifest's range, half-open. The receipt
numbers the parts of all tasks from 0. A large file in a bucket gets its part number from its task (``first_part``),
with more digits.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from urllib.parse import quote

OWNER = "_manifests/_owner.json"
TARGET = "_manifests/_target.json"  # the target, as the sink that writes to this root names it
RECORDS = "_manifests"
STAGING = "_staging"
DEAD_LETTERS = "_dead_letters"
SUCCESS_FILE = "_SUCCESS"  # in the folder of a complete hour
SUFFIXES = ("parquet", "avro", "jsonl", "jsonl.gz", "jsonl.zst")  # of files with rows, without the dot

_NAME = re.compile(
    r"(?P<manifest_id>\d{10,})-a(?P<attempt>\d{4,})"
    r"(?:-p(?P<partition>\d{5,})-(?P<start>\d{19})-(?P<end>\d{19}))?-(?P<part>\d{5,})\."
    rf"(?P<format>{'|'.join(map(re.escape, SUFFIXES))})"
)
_RECORD = re.compile(r"_manifests/(?P<pipeline_name>[^/]+)/(?P<manifest_id>\d{10,})\.(?P<attempt>\d{4,})\.json")


def stream_folder(topic: str) -> str:
    """Return a topic as one path segment, percent-encoded; two topics never get the same segment.

    A leading ``_`` or ``.`` is encoded too, because readers skip folders that begin so.
    """
    encoded = quote(topic, safe="")
    return f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded[:1] in ("_", ".") else encoded


@dataclass(frozen=True)
class Layout:
    """A pattern such as ``raw/{stream}/%Y/%m/%d/%H``; times in it are UTC."""

    pattern: str

    def folder(self, pipeline_name: str, stream: str, when: datetime) -> str:
        """Return the folder, relative to the root, for records of ``stream`` with the event time ``when`` (in UTC)."""
        parts = {"%Y": f"{when.year:04d}", "%m": f"{when.month:02d}", "%d": f"{when.day:02d}", "%H": f"{when.hour:02d}"}
        dated = re.sub(r"%[YmdH]", lambda code: parts[code[0]], self.pattern)
        return dated.replace("{pipeline}", stream_folder(pipeline_name)).replace("{stream}", stream_folder(stream))

    def folders(self, pipeline_name: str, stream: str) -> str:
        """Return the pattern of all folders of a stream: both names are filled in, the codes of times stay."""
        named = self.pattern.replace("{pipeline}", stream_folder(pipeline_name))
        return named.replace("{stream}", stream_folder(stream))

    @property
    def finest(self) -> str:
        """Return the unit of the pattern's finest time code: ``hour``, ``day``, ``month``, ``year``, or ``none``."""
        for code, unit in (("%H", "hour"), ("%d", "day"), ("%m", "month"), ("%Y", "year")):
            if code in self.pattern:
                return unit
        return "none"


def may_meet(folders: str, others: str) -> bool:
    """Return whether a folder of one of these patterns may be a folder of the other, or may lie in one.

    Both come from ``Layout.folders``: their codes of times may stand for any time.
    """
    return all(
        segment == other or ("%" in segment + other and _undated(segment) == _undated(other))
        for segment, other in zip(folders.split("/"), others.split("/"), strict=False)
    )


def scheme_of(root: str) -> str:
    """Return ``s3`` for a root such as ``s3://bucket/prefix``; empty if it is a folder of this machine."""
    match = re.match(r"([a-z][a-z0-9]*)://", root)
    return match[1] if match else ""


def is_remote(root: str) -> bool:
    """Return whether a root is an address in a store, and no folder of this machine."""
    return scheme_of(root) != ""


def one_lies_in_the_other(folder: str, other: str) -> bool:
    """Return whether two folders, or buckets with their prefixes, are the same or one lies in the other."""
    paths = PurePosixPath(folder), PurePosixPath(other)
    return paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0])


def _undated(segment: str) -> str:
    """Return a segment with 0 for every digit, also for those that its time codes stand for."""
    return re.sub(r"\d", "0", segment.replace("%Y", "0000").replace("%m", "00").replace("%d", "00").replace("%H", "00"))


@dataclass(frozen=True)
class ObjectName:
    """The name of one object, which says which attempt wrote it.

    ``span`` is the range of the manifest that its offsets are in, as (partition, start, end); None if the object may
    have rows of several ranges.
    """

    manifest_id: int
    attempt: int
    span: tuple[int, int, int] | None
    part: int
    format: str

    def __str__(self) -> str:
        span = "" if self.span is None else "-p{:05d}-{:019d}-{:019d}".format(*self.span)
        return f"{self.manifest_id:010d}-a{self.attempt:04d}{span}-{self.part:05d}.{self.format}"

    @classmethod
    def parse(cls, path: str) -> "ObjectName | None":
        """Return the name at the end of a path; None if it is not one of ours."""
        match = _NAME.fullmatch(PurePosixPath(path).name)
        if match is None:
            return None
        texts = match["partition"], match["start"], match["end"]
        span = None if texts[0] is None else (int(texts[0]), int(texts[1]), int(texts[2]))
        return cls(int(match["manifest_id"]), int(match["attempt"]), span, int(match["part"]), match["format"])


@dataclass(frozen=True)
class RecordName:
    """The path of the record that one attempt writes into the lake."""

    pipeline_name: str
    manifest_id: int
    attempt: int

    def __str__(self) -> str:
        return f"{RECORDS}/{self.pipeline_name}/{self.manifest_id:010d}.{self.attempt:04d}.json"

    @classmethod
    def parse(cls, path: str) -> "RecordName | None":
        """Return the name of a record from its path relative to the root; None if the path is not one of ours."""
        match = _RECORD.fullmatch(path)
        return match and cls(match["pipeline_name"], int(match["manifest_id"]), int(match["attempt"]))


def first_part(sink: int, task: int) -> int:
    """Return the part number of the first file of a task for a sink, if the task numbers its files itself.

    ``sink`` and ``task`` are their numbers in the order. No other task, sink or receipt uses the same part numbers,
    because a task makes at most a million files for a sink.
    """
    return (1 + sink * 100_000 + task) * 10_000_000


def manifest_staging(manifest_id: int) -> str:
    """Return the folder, relative to the root, with one folder for each attempt at a manifest."""
    return f"{STAGING}/{manifest_id:010d}"


def staging_folder(manifest_id: int, attempt: int) -> str:
    """Return the folder, relative to the root, where only this attempt writes."""
    return f"{manifest_staging(manifest_id)}/{attempt:04d}"


def sink_folder(pipeline_name: str, sink_name: str) -> str:
    """Return the folder of a sink in a folder that several share; names of pipelines and sinks have no dot."""
    return f"{pipeline_name}.{sink_name}"


def dead_letter_folder(stream: str) -> str:
    return f"{DEAD_LETTERS}/{stream_folder(stream)}"
