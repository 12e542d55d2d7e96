"""Paths below a lake root: all of them are built and parsed here.

    <folder of the layout>/<manifest>-a<attempt>-p<partition>-<start>-<end>-<part>.<format>     data
    _dead_letters/<stream>/<the same name>                                                      dead letters
    _manifests/<pipeline>/<manifest>.<attempt>.json                                             records
    <folder of the layout>/_SUCCESS                                                             a complete hour
    _manifests/_owner.json                                                                      the owning database
    _staging/<manifest>/<attempt>/                                                              staging of one attempt

What stages in a folder that is not its target shares that folder with others. There each sink has a root of its own,
``<pipeline>.<sink>``, with ``_staging``, ``_dead_letters`` and the owning database below it as in a lake.

Numbers have fixed widths, so names sort as numbers. Offsets are those of the manifest's range, half-open. The receipt
counts the parts of all tasks from 0; a large file in a bucket gets its part from its task, and a longer number.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from urllib.parse import quote

OWNER = "_manifests/_owner.json"
TARGET = "_manifests/_target.json"  # the name by which a sink comes to this root
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
    """A topic as one path segment, percent-encoded; two topics never get the same segment.

    A leading ``_`` or ``.`` is encoded too, because readers skip folders that begin so.
    """
    encoded = quote(topic, safe="")
    return f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded[:1] in ("_", ".") else encoded


@dataclass(frozen=True)
class Layout:
    """A pattern such as ``raw/{stream}/%Y/%m/%d/%H``; times in it are UTC."""

    pattern: str

    def folder(self, pipeline_name: str, stream: str, when: datetime) -> str:
        """The folder, relative to the root, of records of ``stream`` with the event time ``when`` (aware, in UTC)."""
        parts = {"%Y": f"{when.year:04d}", "%m": f"{when.month:02d}", "%d": f"{when.day:02d}", "%H": f"{when.hour:02d}"}
        dated = re.sub(r"%[YmdH]", lambda code: parts[code[0]], self.pattern)
        return dated.replace("{pipeline}", stream_folder(pipeline_name)).replace("{stream}", stream_folder(stream))

    def folders(self, pipeline_name: str, stream: str) -> str:
        """The pattern with both names in place: all folders of a stream, with times still open."""
        named = self.pattern.replace("{pipeline}", stream_folder(pipeline_name))
        return named.replace("{stream}", stream_folder(stream))

    @property
    def finest(self) -> str:
        """The unit of the pattern's finest part: ``hour``, ``day``, ``month``, ``year``, or ``none`` without any."""
        for code, unit in (("%H", "hour"), ("%d", "day"), ("%m", "month"), ("%Y", "year")):
            if code in self.pattern:
                return unit
        return "none"


def may_meet(folders: str, others: str) -> bool:
    """Return whether a folder of one pattern, with its times open, may be a folder of the other, or lie in one."""
    return all(
        segment == other or ("%" in segment + other and _undated(segment) == _undated(other))
        for segment, other in zip(folders.split("/"), others.split("/"), strict=False)
    )


def one_lies_in_the_other(folder: str, other: str) -> bool:
    """Return whether two folders, or buckets with their prefixes, are the same or one lies in the other."""
    paths = PurePosixPath(folder), PurePosixPath(other)
    return paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0])


def _undated(segment: str) -> str:
    """A segment with 0 for every digit, those of its times too."""
    return re.sub(r"\d", "0", segment.replace("%Y", "0000").replace("%m", "00").replace("%d", "00").replace("%H", "00"))


@dataclass(frozen=True)
class ObjectName:
    """The name of one object: the attempt that wrote it, and the range of the manifest that its offsets are in as
    (partition, start, end); None where it may have rows of several ranges."""

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
        """The name at the end of a path; None for a path that was not built here."""
        match = _NAME.fullmatch(PurePosixPath(path).name)
        if match is None:
            return None
        texts = match["partition"], match["start"], match["end"]
        span = None if texts[0] is None else (int(texts[0]), int(texts[1]), int(texts[2]))
        return cls(int(match["manifest_id"]), int(match["attempt"]), span, int(match["part"]), match["format"])


@dataclass(frozen=True)
class RecordName:
    """The path of the record that one attempt leaves in the lake."""

    pipeline_name: str
    manifest_id: int
    attempt: int

    def __str__(self) -> str:
        return f"{RECORDS}/{self.pipeline_name}/{self.manifest_id:010d}.{self.attempt:04d}.json"

    @classmethod
    def parse(cls, path: str) -> "RecordName | None":
        """The name of a record by its path relative to the root; None for a path that was not built here."""
        match = _RECORD.fullmatch(path)
        return match and cls(match["pipeline_name"], int(match["manifest_id"]), int(match["attempt"]))


def first_part(sink: int, task: int) -> int:
    """The part of the first file of a task for a sink of its order, each by its number, if the task gives it: no other
    task, sink or receipt gives the same, since a task makes at most a million files for a sink."""
    return (1 + sink * 100_000 + task) * 10_000_000


def manifest_staging(manifest_id: int) -> str:
    """The folder, relative to the root, that holds a folder per attempt at a manifest."""
    return f"{STAGING}/{manifest_id:010d}"


def staging_folder(manifest_id: int, attempt: int) -> str:
    """The folder, relative to the root, where only this attempt writes."""
    return f"{manifest_staging(manifest_id)}/{attempt:04d}"


def sink_folder(pipeline_name: str, sink_name: str) -> str:
    """The folder of one sink of one pipeline in a folder that many share; no name of either has a dot."""
    return f"{pipeline_name}.{sink_name}"


def dead_letter_folder(stream: str) -> str:
    return f"{DEAD_LETTERS}/{stream_folder(stream)}"
