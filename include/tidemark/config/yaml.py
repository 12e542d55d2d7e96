"""Reads a YAML file as plain values, with the line of every key for messages.

It is stricter than YAML: a key written twice is a problem, ``yes`` and ``off`` are text, ``010`` is ten, ``1:30`` and
``2024-01-31`` are text, and tags are refused. ``${NAME}`` and ``${NAME:-default}`` in a value are replaced from the
environment, before it is decided whether an unquoted value is a number, true, false or null.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tidemark.text import is_text, nearest

_YAML: Final = "tag:yaml.org,2002:"
Place = tuple[str | int, ...]

_VARIABLE: Final = re.compile(r"\$\{((?:[^{}]|\{[^{}]*\})*)\}")
_NAMED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_MOST_VALUES: Final = 20_000  # a few lines of aliases can expand to billions of values


@dataclass(frozen=True)
class YamlProblem:
    """A problem at a place in the file; lines count from 1."""

    line: int
    place: Place
    message: str


class NotYaml(Exception):
    """The text cannot be read as one YAML document."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass
class Document:
    """The values of a file. A value that could not be read is None, and its place is in ``unreadable``.

    ``replaced`` has, by place, each value with variables: its text in the file, and the values of the variables.
    """

    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[YamlProblem] = field(default_factory=list)
    unreadable: set[Place] = field(default_factory=set)
    replaced: dict[Place, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Return the line of the place, or of the nearest place above it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


class _Loader(yaml.SafeLoader):
    """Knows only null, true, false and numbers among YAML's implicit types."""


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("null", r"(~|null|Null|NULL|)", "~nN"),
    ("bool", r"(true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("float", r"[-+]?([0-9][0-9_]*)?\.?[0-9]+([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _firsts = [*_first, ""] if _kind == "null" else list(_first)
    _Loader.add_implicit_resolver(f"{_YAML}{_kind}", re.compile(f"^(?:{_pattern})$"), _firsts)

if yaml.__with_libyaml__:

    class _QuickLoader(yaml.composer.Composer, yaml.CSafeLoader):
        """Parses by libyaml, in an eighth of the time. PyYAML composes: libyaml would end the process on too deep
        nesting.
        """

        yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)


def read(text: str, env: Mapping[str, str]) -> Document:
    """Return the document of a YAML text. Raises ``NotYaml`` if the text is not YAML."""
    try:
        resolver, node = _composed(text)
        reading = _Reading(resolver, env, Document())
        reading.document.value = None if node is None else reading.value(node, ())
        return reading.document
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise NotYaml(line, f"is not text: it holds the control character {int(problem.character):#04x}") from None
    except yaml.MarkedYAMLError as problem:
        raise NotYaml(_line(problem), _explained(problem, text)) from None
    except RecursionError:
        raise NotYaml(1, "is nested too deeply") from None
    except (ValueError, OverflowError) as problem:
        raise NotYaml(1, f"is not YAML: {problem}") from None


def _composed(text: str) -> tuple[yaml.resolver.Resolver, yaml.Node | None]:
    """Parse with libyaml, or, if that refuses the text, with PyYAML's own parser: its messages name the place, and it
    may accept the text.
    """
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError):
            quick = _QuickLoader(text)
            return quick, quick.get_single_node()
    loader = _Loader(text)
    return loader, loader.get_single_node()


def _line(problem: yaml.MarkedYAMLError) -> int:
    mark = problem.problem_mark or problem.context_mark
    return mark.line + 1 if mark else 1


def _explained(problem: yaml.MarkedYAMLError, text: str) -> str:
    reason = problem.problem or problem.context or "it cannot be parsed"
    lines = text.splitlines() or [""]
    line = lines[min(_line(problem), len(lines)) - 1]
    if "'\\t'" in reason:
        return "is indented with a tab; YAML indents with spaces only"
    if "but found another document" in reason:
        return "holds a second document; one file describes one pipeline"
    if "${" in line:
        return f'is not YAML: {reason}; a value with ${{..}} inside [ ] or {{ }} needs quotes: "${{NAME}}"'
    return f"is not YAML: {reason}"


class _Reading:
    def __init__(self, resolver: yaml.resolver.Resolver, env: Mapping[str, str], document: Document) -> None:
        self.resolver = resolver
        self.env = env
        self.document = document
        self.above: set[int] = set()
        self.values = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        """Return the value of a node. Its problems, and those below it, are added to the document."""
        line = node.start_mark.line + 1
        self.document.lines.setdefault(place, line)
        self.values += 1
        if self.values > _MOST_VALUES:
            raise NotYaml(line, f"holds more than {_MOST_VALUES:,} values")
        if id(node) in self.above:
            raise NotYaml(line, "holds an alias of something that contains it")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        self.above.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
                return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
                return {key: self.value(below, (*place, key)) for key, below in self._entries(node, place)}
        finally:
            self.above.discard(id(node))
        return self._refuse_tag(node, place)

    def _entries(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, yaml.Node]]:
        seen: dict[str, int] = {}
        for key, below in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.document.problems.append(YamlProblem(line, place, "has a key that is not a word"))
            elif key.value in seen:
                message = f"is written twice, first on line {seen[key.value]}; remove one"
                self.document.problems.append(YamlProblem(line, (*place, key.value), message))
            elif not is_text(key.value):
                self.document.problems.append(YamlProblem(line, place, "has a key that is not valid Unicode"))
            else:
                seen[key.value] = line
                self.document.lines[*place, key.value] = line
                yield key.value, below

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        text, tag = node.value, node.tag
        if "${" in text and tag == f"{_YAML}str":
            text = self._replaced(text, place)
            if place in self.document.unreadable:
                return None
            if not node.style:  # a plain scalar: None in PyYAML, "" in libyaml
                tag = self.resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        if not is_text(text):
            return self._unreadable(place, "holds half a character, which is not valid Unicode")
        match tag.removeprefix(_YAML):
            case "str":
                return text
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" if re.fullmatch(r"[-+]?[0-9][0-9_]{0,99}", text):
                return int(text.replace("_", ""))
            case "int" if re.fullmatch(r"[-+]?[0-9_]+", text):
                return self._unreadable(place, "is a number of more than 100 digits")
            case "float" if re.fullmatch(r"[-+.0-9_eE]+", text):
                return float(text.replace("_", ""))
            case _:
                return self._refuse_tag(node, place)

    def _replaced(self, text: str, place: Place) -> str:
        used: dict[str, str] = {}

        def value_of(match: re.Match[str]) -> str:
            named = _NAMED.fullmatch(match[1])
            if named is None:
                self._unreadable(place, f'has "{match[0]}", which is not ${{NAME}} or ${{NAME:-default}}')
                return ""
            name, default = named[1], named[2]
            value = self.env.get(name)
            if value is None and default is None:
                close = nearest(name, self.env)
                hint = f" ({close})" if close else ""
                missing = f"needs the environment variable {name}, which is not set{hint}"
                self._unreadable(place, f"{missing}; set it, or write ${{{name}:-default}}")
                return ""
            if value is None or (not value and default is not None):
                return default or ""
            used[name] = value
            return value

        result = _VARIABLE.sub(value_of, text)
        if "${" in _VARIABLE.sub("", text):
            self._unreadable(place, 'has "${" without its "}"; write ${NAME} or ${NAME:-default}')
        self.document.replaced[place] = (text, used)
        return result

    def _refuse_tag(self, node: yaml.Node, place: Place) -> None:
        self._unreadable(place, f"has the tag {node.tag}, which has no meaning here; remove it")

    def _unreadable(self, place: Place, message: str) -> None:
        self.document.unreadable.add(place)
        self.document.problems.append(YamlProblem(self.document.line(place), place, message))
