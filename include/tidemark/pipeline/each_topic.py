"""A file with ``each_topic`` is a template: each topic that its source reads has a pipeline of its own, a member.

    each_topic: true      # or the differences, by topic: {shop.orders: {sinks: [..]}, shop.audit: false}

A member is called ``GROUP.TOPIC``. No name of a file has a dot, so the first dot ends the group's name, and two topics
never have the same name. A member is made only of the file's text and its topic: members are listed nowhere but in the
manifest database, which knows those that were planned.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidemark.config.base import settings_of_kinds, wrong_at
from tidemark.config.yaml import Place
from tidemark.kinds import SOURCES
from tidemark.sources.settings import SourceSettings

KEY: Final = "each_topic"
JSON_SCHEMA: Final = {
    "default": None,
    "description": "Each topic of the source has a pipeline of its own, made of this file: `true`; or by topic the "
    "keys that differ, or `false` to leave it out ([one file, many tables](one-file-many-tables.md)).",
    "anyOf": [
        {"const": True},
        {"type": "object", "additionalProperties": {"anyOf": [{"const": False}, {"type": "object"}]}},
    ],
}
LONGEST: Final = 255  # bytes of a folder's name, on most file systems: a member has its own folder
# Keys that the DAG and its tasks share, or that belong to a session of Spark.
SHARED: Final = (
    "pipeline", "schedule", "trigger", "start_date", "catchup", "max_active_runs", "retries", "retry_delay",
    "unfinished", "airflow", "spark",
)  # fmt: skip
FILLED: Final = ("description", "decode", "transform", "expect", "event_time", "sinks")  # where {topic} is replaced
PROBES: Final = ("a.topic", "b.topic")
# The name of a file of each topic, with one placeholder.
_OWN_FILE: Final = re.compile(
    r"(?P<folder>(?:[^\s{}*?\[\]]*/)?)(?P<head>[^\s{}*?\[\]/]*)\{(?P<place>\w+)\}(?P<tail>[^\s{}*?\[\]]*\.\w+)"
)
_IN_A_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")  # because the name is a part of paths


def split_name(name: str) -> tuple[str, str | None]:
    """Return the group and the topic of a member; for any other pipeline, its name and None."""
    group, dot, topic = name.partition(".")
    return group, topic if dot else None


@dataclass(frozen=True)
class Template:
    """The file as plain values, without ``each_topic``. ``differences`` has, by topic, the values of the file, or
    ``False`` for a topic that is left out.
    """

    name: str
    value: Mapping[str, Any]
    kind: str
    source: type[SourceSettings]
    differences: Mapping[str, Any]

    def leaves_out(self, topic: str) -> bool:
        return self.differences.get(topic) is False

    def member_name(self, topic: str) -> str:
        return f"{self.name}.{topic}"

    def listed(self) -> tuple[str, ...]:
        """Return the topics that the source names one by one."""
        named = self._source().get(self._topics_key())
        return tuple(each for each in named if isinstance(each, str)) if isinstance(named, list) else ()

    def reads_others(self) -> bool:
        """Return whether the source selects topics that the file does not name."""
        return any(self._source().get(key) is not None for key in self.source.selecting_keys - {self._topics_key()})

    def without_difference(self) -> list[str]:
        """Return the topics that the source names one by one and that have no difference."""
        return [topic for topic in self.listed() if topic not in self.differences]

    def probes(self) -> tuple[str, ...]:
        """Return made-up topics to try the template with, if its source also reads topics that the file does not
        name.
        """
        return PROBES if self.reads_others() else ()

    def examples(self) -> list[str]:
        """Return a topic that the pattern of the source matches, if a simple one can be made up."""
        pattern = str(self._source().get("topics_regex", ""))
        topic = re.sub(r"\\(.)", r"\1", re.sub(r"\(\?P<\w+>[^()]*\)|\.[*+]", "example", pattern))
        try:
            return [topic] if re.fullmatch(pattern, topic) and _IN_A_NAME.fullmatch(topic) else []
        except re.error:
            return []

    def topics_with_files(self, folder: Path) -> list[str]:
        """Return the topics without a difference that have a file of their own below the folder, such as
        ``schemas/{topic}.json``. A template that names such a file cannot be tried with a made-up topic.
        """
        topics: dict[str, None] = {}
        for text in _texts([self.value.get(key) for key in FILLED]):
            named = _OWN_FILE.fullmatch(text)
            if named is None:
                continue
            base = folder / named["folder"]
            for path in sorted(base.glob(f"{named['head']}*{named['tail']}")):
                word = path.relative_to(base).as_posix().removeprefix(named["head"]).removesuffix(named["tail"])
                topics |= dict.fromkeys(self._topics_of(named["place"], word))
        return [topic for topic in topics if topic not in self.differences]

    def _topics_of(self, place: str, word: str) -> Iterator[str]:
        """Yield the topic for which the pattern of the source puts this word into a placeholder, if it can be found."""
        pattern = str(self._source().get("topics_regex", ""))
        whole = re.sub(rf"\(\?P<{place}>[^()]*\)", lambda _: re.escape(word), pattern)
        topic = word if place == "topic" else re.sub(r"\\(.)", r"\1", whole)
        if {"topic": topic, **self._captured(topic)}.get(place) == word and re.fullmatch(pattern, topic):
            yield topic

    def filled(self, topic: str) -> dict[str, Any]:
        """Return the file of a member as plain values. Raises ``ValidationError`` for a difference that is not
        allowed.
        """
        self._refuse(topic)
        merged = _merged(self.value, self.differences.get(topic) or {})
        words = {"topic": topic, **self._captured(topic)}
        values = {key: _replaced(value, words) if key in FILLED else value for key, value in merged.items()}
        section = merged["source"][self.kind]
        own = {key: value for key, value in section.items() if key not in self.source.selecting_keys}
        return {**values, "source": {self.kind: {**own, self._topics_key(): [topic]}}}

    def place_in_file(self, topic: str, place: Place) -> Place:
        """Return the place in the file of a value of a member: below ``each_topic``, or in the template."""
        differs: Any = self.differences.get(topic)
        base: Any = self.value
        path: list[str | int] = []
        for part in place:
            if isinstance(differs, list) and isinstance(base, list) and path == ["sinks"]:
                part = _place_of_sink(base, differs, part)
            if isinstance(differs, Mapping) and part not in differs:
                return place
            if isinstance(differs, list):
                if not isinstance(part, int) or not 0 <= part < len(differs):
                    break
                differs = differs[part]
            elif isinstance(differs, Mapping):
                differs = differs[part]
            else:
                break
            base = base.get(part) if isinstance(base, Mapping) else None
            path.append(part)
        return (KEY, topic, *path) if path else place

    def _refuse(self, topic: str) -> None:
        name, differs = self.member_name(topic), self.differences.get(topic)
        if len(name.encode()) > LONGEST:
            raise wrong_at(KEY, f"gives topic {topic} a pipeline whose name has more than {LONGEST} bytes: read it "
                "with a file of its own, or give this file a shorter name")  # fmt: skip
        if not _IN_A_NAME.fullmatch(topic):
            raise wrong_at(KEY, f"cannot name a pipeline after topic {topic!a}, which has more than letters, digits, "
                "., _ and -: read it with a file of its own; if it is a pattern, write it as topics_regex")  # fmt: skip
        if differs is None and topic in self.differences:
            raise wrong_at((KEY, topic), "is empty: write what differs below it, {} for nothing, or false to leave "
                "the topic out")  # fmt: skip
        if differs is None or differs is False:
            return
        if not isinstance(differs, Mapping):
            raise wrong_at((KEY, topic), "must hold what differs, or be false: then the topic is left out")
        for key in differs:
            if key in (*SHARED, KEY):
                raise wrong_at((KEY, topic, key), "is shared by all topics: write it once, at the top; what must "
                    "differ in it needs a file of its own")  # fmt: skip
        source = differs.get("source", {})
        if not isinstance(source, Mapping) or source.keys() - {self.kind}:
            raise wrong_at((KEY, topic, "source"), f"must be of the group's kind, {self.kind}")
        section = source.get(self.kind, {})
        for key in section if isinstance(section, Mapping) else ():
            if key in self.source.selecting_keys | self.source.place_keys:
                raise wrong_at((KEY, topic, "source", self.kind, key), "is shared by all topics, as they are listed "
                    "at one place: another connection, broker or topic needs a file of its own")  # fmt: skip

    def _source(self) -> Mapping[str, Any]:
        section: Mapping[str, Any] = self.value["source"][self.kind]
        return section

    def _topics_key(self) -> str:
        return self.source.model_fields["topics"].alias or "topics"

    def _captured(self, topic: str) -> dict[str, str]:
        """Return the named groups of the pattern, by name. If the pattern does not match the topic, each has the whole
        topic.
        """
        pattern = self._source().get("topics_regex")
        try:
            compiled = re.compile(pattern if isinstance(pattern, str) else "")
        except re.error:  # the settings of the source report it
            return {}
        match = compiled.fullmatch(topic)
        return {name: (match[name] or "") if match else topic for name in compiled.groupindex}


def template(value: Mapping[str, Any]) -> Template:
    """Return the template of a file. Raises ``ValidationError`` for problems of all members."""
    wish, source = value[KEY], value.get("source")
    if wish is not True and not isinstance(wish, Mapping):
        raise wrong_at(KEY, "must be true, or hold what differs, by topic")
    kinds = settings_of_kinds(SOURCES, SourceSettings)
    kind = next(iter(source), "") if isinstance(source, Mapping) else ""
    if not isinstance(source, Mapping) or kind not in kinds or not isinstance(source[kind], Mapping):
        raise wrong_at("source", f"must hold one key, the kind of the source, with its settings below; allowed: "
            f"{', '.join(kinds)}")  # fmt: skip
    if value.get("trigger") is not None:
        raise wrong_at("trigger", "cannot begin the runs of a group of topics, whose lags differ: write a schedule, or "
            "give the topics that need it a file of their own")  # fmt: skip
    if isinstance(value.get("decode"), list):
        raise wrong_at("decode", f"must be one mapping, as each topic has a pipeline of its own: write what differs "
            f"below {KEY}, by topic")  # fmt: skip
    rest = {key: below for key, below in value.items() if key != KEY}
    differences = wish if isinstance(wish, Mapping) else {}
    return Template(str(value.get("pipeline", "")), rest, kind, kinds[kind], differences)


def _texts(value: Any) -> Iterator[str]:
    below = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in below:
        yield from _texts(each)
    if isinstance(value, str):
        yield value


def _replaced(value: Any, words: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _replaced(below, words, name) for name, below in value.items()}
    if isinstance(value, list):
        return [_replaced(below, words, key) for below in value]
    if not isinstance(value, str):
        return value
    for word, text in words.items():
        value = value.replace(f"{{{word}}}", identifier(text) if key == "table" else text)
    return value


def identifier(topic: str) -> str:
    """Return the name of a table for a topic: in lower case, with ``_`` for each character that is not a letter, digit
    or ``_``.
    """
    name = re.sub(r"[^a-z0-9_]", "_", topic.lower())
    return f"_{name}" if name[:1].isdigit() else name


def _merged(base: Any, differs: Any, key: str = "") -> Any:
    """Merge mappings key by key, and sinks by their names. Replace anything else, and a section with another
    ``format``.
    """
    if key == "sinks" and isinstance(base, list) and isinstance(differs, list):
        return _merged_sinks(base, differs)
    if not isinstance(base, Mapping) or not isinstance(differs, Mapping):
        return differs
    if differs.get("format", base.get("format")) != base.get("format"):
        return differs
    return {**base, **{name: _merged(base.get(name), below, name) for name, below in differs.items()}}


def _merged_sinks(base: list[Any], differs: list[Any]) -> list[Any]:
    by_name = {_sink_name(entry): entry for entry in base}
    for entry in differs:
        name = _sink_name(entry)
        by_name[name] = _merged(by_name[name], entry) if name in by_name else entry
    return list(by_name.values())


def _place_of_sink(base: list[Any], differs: list[Any], number: str | int) -> int:
    """Return the index in ``differs`` of the entry that became the sink of this number; -1 if the sink has no
    difference.
    """
    merged = _merged_sinks(base, differs)
    if not isinstance(number, int) or number >= len(merged):
        return -1
    names = [_sink_name(entry) for entry in differs]
    name = _sink_name(merged[number])
    return names.index(name) if name in names else -1


def _sink_name(entry: Any) -> str:
    kind, settings = next(iter(entry.items())) if isinstance(entry, Mapping) and entry else (repr(entry), None)
    return str(settings.get("name", kind)) if isinstance(settings, Mapping) else str(kind)
