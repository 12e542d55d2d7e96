"""Reads pipeline files, and says of every problem in them: file, line, key, what is wrong, what is allowed.

Relative schema files lie beside their pipeline file, relative lake roots below ``TIDEMARK_HOME``, which is the current
folder unless it is set.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidemark.config import yaml
from tidemark.config.base import OneKind, Section, Surroundings
from tidemark.config.yaml import Document, Place
from tidemark.decoders.registry import DECODERS
from tidemark.errors import ConfigurationError, NotFound
from tidemark.pipeline.settings import Pipeline
from tidemark.suggestion import nearest

_LARGEST_FILE: Final = 2**20
_NEXT: Final = "correct it and check again with: tidemark validate"


@dataclass(frozen=True)
class Problem:
    """One thing to correct; ``line`` is None when it is about the file as a whole, ``key`` is empty then."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (where, self.key, self.message) if part)


class InvalidPipelines(ConfigurationError):
    """Pipeline files are wrong; ``problems`` has all of them, in the order of files and lines."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(one) for one in problems), next_step=_NEXT)


def pipeline_files(folder: Path | str) -> list[Path]:
    """The YAML files of a folder by name, not those of folders below it, nor hidden ones."""
    place = Path(folder)
    if not place.is_dir():
        raise ConfigurationError(
            f"there is no folder of pipelines at {place}", next_step="set TIDEMARK_PIPELINES, or give --pipelines DIR"
        )
    try:
        found = sorted(place.iterdir())
    except OSError as problem:
        raise ConfigurationError(
            f"the folder {place} cannot be read: {problem.strerror}", next_step="check who may read it"
        ) from problem
    return [one for one in found if one.suffix in (".yaml", ".yml") and not one.name.startswith(".")]


def load(path: Path | str, env: Mapping[str, str] = os.environ) -> Pipeline:
    """The pipeline of one file; ``InvalidPipelines`` has every problem of it."""
    file = Path(path)
    try:
        document = yaml.read(_text(file), env)
    except yaml.NotYaml as problem:
        raise InvalidPipelines([Problem(str(file), problem.line, "", problem.message)]) from None
    if not isinstance(document.value, dict):
        said = "is empty" if document.value is None else f"must be a mapping, its top is {_kind(document.value)}"
        raise InvalidPipelines([Problem(str(file), None, "", f"{said}; begin with pipeline: NAME")])
    problems = [(one.line, one.place, one.message) for one in document.problems]
    surroundings = Surroundings(file.parent, Path(env.get("TIDEMARK_HOME") or ".").absolute())
    try:
        pipeline = Pipeline.model_validate(document.value, context=surroundings)
    except ValidationError as invalid:
        problems += _explained(invalid, document)
    if problems:
        in_order = sorted(problems, key=lambda one: one[0])
        raise InvalidPipelines([Problem(str(file), line, _written(key), text) for line, key, text in in_order])
    return pipeline


def load_or_error(path: Path, env: Mapping[str, str] = os.environ) -> Pipeline | InvalidPipelines:
    """The pipeline of one file, or what is wrong with it."""
    try:
        return load(path, env)
    except InvalidPipelines as invalid:
        return invalid


def load_each(
    folder: Path | str, env: Mapping[str, str] = os.environ
) -> list[tuple[Path, Pipeline | InvalidPipelines]]:
    """Every file of a folder with its pipeline or what is wrong with it: one bad file does not hide the others."""
    loaded, problems = _load_files(pipeline_files(folder), env)
    files: dict[Path, Pipeline | InvalidPipelines] = dict(loaded)
    for file in pipeline_files(folder):
        own = [one for one in problems if one.file == str(file)]
        if own:
            files[file] = InvalidPipelines(own)
    return sorted(files.items())


def load_named(
    folder: Path | str, name: str, env: Mapping[str, str] = os.environ
) -> list[tuple[Path, Pipeline | InvalidPipelines]]:
    """The file of one pipeline alone; every file, as ``load_each`` has them, when no text shows that name.

    Other files are read and not parsed: 300 of them take 10 ms instead of seconds.
    """
    files = [file for file in pipeline_files(folder) if _shows_name(file, name)]
    loaded, _ = _load_files(files, env)
    own: list[tuple[Path, Pipeline | InvalidPipelines]] = [found for found in loaded if found[1].name == name]
    return own or load_each(folder, env)


def _shows_name(file: Path, name: str) -> bool:
    """Whether a line of the file says ``pipeline: NAME``, in any of the usual ways to write it."""
    try:
        text = _text(file)
    except InvalidPipelines:
        return False
    return re.search(rf"""pipeline["']?\s*:\s*["']?{re.escape(name)}(?![a-z0-9_-])""", text) is not None


def find(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> Pipeline:
    """The pipeline of that name; other files may have problems, unless the name is in none of the good ones."""
    loaded, problems = _load_files(pipeline_files(folder), env)
    by_name = {pipeline.name: pipeline for _, pipeline in loaded}
    twice = [one for one in problems if one.key == "pipeline" and f'"{name}"' in one.message]
    if twice or (problems and name not in by_name):
        raise InvalidPipelines(twice or problems)
    if name not in by_name:
        known = f"it has: {', '.join(sorted(by_name))}" if by_name else "it has no pipeline files"
        raise NotFound(
            " ".join(f"there is no pipeline {name} in {folder}; {nearest(name, by_name)} {known}".split()),
            next_step="name one of them, or set TIDEMARK_PIPELINES to another folder",
        )
    return by_name[name]


def _load_files(files: list[Path], env: Mapping[str, str]) -> tuple[list[tuple[Path, Pipeline]], list[Problem]]:
    loaded: list[tuple[Path, Pipeline]] = []
    problems: list[Problem] = []
    for file in files:
        try:
            pipeline = load(file, env)
        except InvalidPipelines as invalid:
            problems += invalid.problems
            continue
        same = next((path for path, other in loaded if other.name == pipeline.name), None)
        if same is None:
            loaded.append((file, pipeline))
        else:
            line = yaml.read(_text(file), env).line(("pipeline",))
            message = f'is "{pipeline.name}", as in {same}; no two pipelines share a name'
            problems.append(Problem(str(file), line, "pipeline", message))
    return loaded, problems


def _text(file: Path) -> str:
    wrong = "" if file.is_file() else "is not a file" if file.exists() else "does not exist"
    try:
        if not wrong and file.stat().st_size <= _LARGEST_FILE:
            return file.read_bytes().decode("utf-8-sig")
        wrong = wrong or f"is larger than {_LARGEST_FILE:,} bytes; that is no pipeline file"
    except OSError as problem:
        wrong = f"cannot be read: {problem.strerror}"
    except UnicodeDecodeError as problem:
        wrong = f"is not UTF-8 text: byte {problem.object[problem.start]:#04x} at position {problem.start}"
    raise InvalidPipelines([Problem(str(file), None, "", wrong)])


def _explained(invalid: ValidationError, document: Document) -> list[tuple[int, Place, str]]:
    found = []
    for error in invalid.errors(include_url=False):
        place = _place(error)
        if any(place[: len(known)] == known for known in document.unreadable):
            continue
        found.append((document.line(place), place, _without_values(_message(error, place, document), place, document)))
    return found


def _place(error: ErrorDetails) -> Place:
    """Where in the file: pydantic adds the decoder's format below `decode`, and a mark for problems of a key itself."""
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        return (*loc, "format")
    if loc[:1] == ("decode",):
        loc = (loc[0], *loc[2:])
    return loc[:-1] if loc[-1:] == ("[key]",) else loc


def _message(error: ErrorDetails, place: Place, document: Document) -> str:
    given, context = error["input"], error.get("ctx", {})
    shown = f" (it is {_shown(given, place, document)})"
    match error["type"]:
        case "tidemark":
            message = str(context["message"])
            return message + shown if message.startswith("must") and isinstance(given, str | int | float) else message
        case "extra_forbidden":
            return _unknown_key(error["loc"])
        case "missing":
            return f"is missing: {_description(error['loc'])}"
        case "enum" | "literal_error":
            return _not_a_choice(_shown(given, place, document), given, str(context["expected"]))
        case "union_tag_invalid":
            tag = given.get("format") if isinstance(given, dict) else None
            return _not_a_choice(_shown(tag, place, document), tag, str(context["expected_tags"]))
        case "union_tag_not_found":
            return f"is missing: what the records are; allowed: {', '.join(DECODERS)}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:,}{shown}"
        case "less_than_equal":
            return f"must be at most {context['le']:,}{shown}"
        case "string_too_short":
            return "must not be empty"
        case kind:
            return f"must be {_WANTED.get(kind, 'something else')}{shown}"


_WANTED: Final = {
    "string_type": "text, in quotes where it could be taken for a number",
    "int_type": "a whole number, without quotes",
    "bool_type": "true or false, without quotes",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}


def _unknown_key(loc: Place) -> str:
    key = str(loc[-1])
    section = _section(loc[:-1])
    if reason := section.why_refused(key):
        return f"is not allowed: {reason}"
    allowed = sorted(field.alias or name for name, field in section.model_fields.items())
    return " ".join(f"unknown key; {nearest(key, allowed)} allowed: {', '.join(allowed)}".split())


def _not_a_choice(shown: str, given: object, expected: str) -> str:
    allowed = re.findall(r"'([^']*)'", expected)
    close = nearest(given, allowed) if isinstance(given, str) else ""
    return " ".join(f"{shown} is not allowed; {close} allowed: {', '.join(allowed)}".split())


def _description(loc: Place) -> str:
    fields = _section(loc[:-1]).model_fields
    return next(field.description or "" for name, field in fields.items() if loc[-1] in (name, field.alias))


def _section(loc: Place) -> type[Section]:
    """The model that a place of a pydantic error lies in, such as ``Slice`` for source, kafka, slice."""
    here: list[type[Section]] = [Pipeline]
    for part in loc:
        if isinstance(part, int):
            continue
        if len(here) > 1:
            here = [one for one in here if part in get_args(one.model_fields["format"].annotation)]
            continue
        field = next(one for name, one in here[0].model_fields.items() if part in (name, one.alias))
        here = _sections_of(field.annotation, tuple(field.metadata))
    return here[0]


def _sections_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> list[type[Section]]:
    """The models a type is made of, as they are written in the file."""
    for one in metadata:
        if isinstance(one, OneKind):
            return [one.section()]
        if isinstance(written := getattr(one, "json_schema_input_type", None), type) and issubclass(written, Section):
            return [written]
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return _sections_of(inner, tuple(marks))
    return [section for argument in get_args(annotation) for section in _sections_of(argument)]


def _shown(given: object, place: Place, document: Document) -> str:
    """A value as its writer wrote it: a variable by its name, since its value may be a secret."""
    if place in document.replaced:
        given = document.replaced[place][0]
    if isinstance(given, str):
        short = given if len(given) <= 60 else f"{given[:57]}..."
        return f'"{short}"' if short.isprintable() else ascii(short)
    return _kind(given) if given is None or isinstance(given, list | dict) else str(given).lower()


def _kind(given: object) -> str:
    match given:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return "text"
        case _:
            return "a single value"


def _without_values(message: str, place: Place, document: Document) -> str:
    """Name the variable instead of its value; one of less than four characters is no secret, only part of words."""
    for other, (_, values) in document.replaced.items():
        if other[: len(place)] == place or place[: len(other)] == other:
            for name, value in values.items():
                message = message.replace(value, f"${{{name}}}") if len(value) > 3 else message
    return message


def _written(place: Place) -> str:
    """A place as a person writes it: ``sinks[0].files.root``."""
    words = [
        f"[{part}]" if isinstance(part, int) else f".{part if part.isprintable() else ascii(part)}" for part in place
    ]
    return "".join(words).removeprefix(".")
