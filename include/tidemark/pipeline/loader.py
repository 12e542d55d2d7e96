"""Reads pipeline files. Each problem has file, line, key, what is wrong and what is allowed.

The path of a schema file is relative to its pipeline file; a lake root is relative to ``TIDEMARK_HOME``, by default the
current folder.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidemark.config import yaml
from tidemark.config.base import LoadContext, OneKind, Section, wrong_at
from tidemark.config.yaml import Document, Place
from tidemark.errors import ConfigurationError, NotFound
from tidemark.kinds import DECODERS
from tidemark.pipeline import each_topic
from tidemark.pipeline.each_topic import Template, split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.kept import kept_file
from tidemark.pipeline.problems import FileProblem, InvalidPipelines
from tidemark.pipeline.settings import OF_TOPICS, Pipeline
from tidemark.text import nearest, with_nearest, without_links

_LARGEST_FILE: Final = 2**20


def pipeline_files(folder: Path | str) -> list[Path]:
    """Return the YAML files of a folder, sorted by name; without subfolders and hidden files."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigurationError(
            f"there is no folder of pipelines at {path}", next_step="set TIDEMARK_PIPELINES, or give --pipelines DIR"
        )
    try:
        files = sorted(path.iterdir())
    except OSError as problem:
        raise ConfigurationError(
            f"the folder {path} cannot be read: {problem.strerror}", next_step="check who may read it"
        ) from problem
    return [file for file in files if file.suffix in (".yaml", ".yml") and not file.name.startswith(".")]


def load(path: Path | str, env: Mapping[str, str] = os.environ) -> Pipeline | Group:
    """Return the pipeline or the group of one file. Raises ``InvalidPipelines`` with all problems of the file."""
    file = Path(path)
    return parse(file, _text(file), {}, env)


def parse(file: Path, text: str, named: dict[str, str], env: Mapping[str, str]) -> Pipeline | Group:
    """Return the pipeline of a file's text, or the group if it has ``each_topic``. ``named`` has texts of files that it
    names; missing ones are read and added.

    Raises ``InvalidPipelines`` with all problems.
    """
    try:
        document = yaml.read(text, env)
    except yaml.NotYaml as problem:
        raise InvalidPipelines([FileProblem(str(file), problem.line, "", problem.message)]) from None
    if not isinstance(document.value, dict):
        what = "is empty" if document.value is None else f"must be a mapping, its top is {_kind(document.value)}"
        raise InvalidPipelines([FileProblem(str(file), None, "", f"{what}; begin with pipeline: NAME")])
    problems = [(problem.line, problem.place, problem.message) for problem in document.problems]
    load_context = LoadContext(file.parent, Path(env.get("TIDEMARK_HOME") or ".").absolute(), named)
    try:
        if each_topic.KEY in document.value:
            pipeline: Pipeline | Group = _group(str(file), document, load_context)
        else:
            pipeline = Pipeline.model_validate(document.value, context=load_context)
            _refuse_bundle(pipeline)
    except ValidationError as invalid:
        problems += _explained(invalid, document)
    if problems:
        raise _invalid(str(file), problems)
    return pipeline


def _refuse_bundle(pipeline: Pipeline) -> None:
    if pipeline.airflow.bundle > 1:
        raise wrong_at(("airflow", "bundle"), f"is for a file with {each_topic.KEY}, whose topics share an "
            "application: leave it out; larger slices make fewer manifests of one topic")  # fmt: skip


def _invalid(file: str, problems: Sequence[tuple[int, Place, str]]) -> InvalidPipelines:
    in_order = sorted(problems, key=lambda problem: problem[0])
    return InvalidPipelines([FileProblem(file, line, _written(place), text) for line, place, text in in_order])


def _group(file: str, document: Document, load_context: LoadContext) -> Group:
    """Return the group of a file. Raises ``ValidationError`` for problems of all members, which the template has
    without any difference.
    """
    template = each_topic.template(document.value)
    alike, of_alike = _made_or_wrong(template, template.without_difference(), load_context)
    alike += _tried(template, load_context)
    _refuse_one_target(alike)
    of_differing = [topic for topic in template.differences if not template.leaves_out(topic)]
    differing, of_differences = _made_or_wrong(template, of_differing, load_context)
    errors = {**of_alike, **of_differences}
    wrong = {
        topic: _invalid(file, _explained_member(invalid, template, topic, document))
        for topic, invalid in errors.items()
    }
    members = [*alike, *differing]
    if not members:
        if not errors:
            raise wrong_at(each_topic.KEY, "leaves out every topic that the source names: then there is none to read")
        if of_alike or len(wrong) == 1:
            raise next(iter(errors.values()))
        first = next(iter(wrong.values())).what
        raise wrong_at(each_topic.KEY, f"has no valid topic; the first one: {first}")
    example = template.filled(members[0].source.topics[0])
    shared_values = {**example, "source": template.value["source"]}
    shared = Pipeline.model_validate(shared_values, context=load_context)
    for topic in template.differences:
        if not shared.source.reads(topic):
            names = shared.source.topics
            wrong[topic] = _invalid(file, [(
                document.line((each_topic.KEY, topic)), (each_topic.KEY, topic),
                with_nearest(f"names {topic}, which source.{template.kind} does not read", topic, names),
            )])  # fmt: skip
    connections = frozenset(conn_id for pipeline in members for conn_id in pipeline.connections())
    return Group(template, shared, file, document, load_context, wrong, connections)


def _made_or_wrong(
    template: Template, topics: Sequence[str], load_context: LoadContext
) -> tuple[list[Pipeline], dict[str, ValidationError]]:
    """Return the pipelines of these topics, and the errors of the others by topic."""
    pipelines: list[Pipeline] = []
    errors: dict[str, ValidationError] = {}
    for topic in topics:
        try:
            pipelines.append(_made(template, topic, load_context))
        except ValidationError as invalid:
            errors[topic] = invalid
    return pipelines, errors


def _tried(template: Template, load_context: LoadContext) -> list[Pipeline]:
    """Return pipelines of the template for topics that the file does not name: made-up ones, or those that have a file
    of their own.

    Raises ``ValidationError`` if the template is wrong with every one.
    """
    probes = template.probes()
    pipelines, errors = _made_or_wrong(template, probes, load_context)
    if errors:
        pipelines, _ = _made_or_wrong(template, template.topics_with_files(load_context.folder), load_context)
        if not pipelines:
            raise errors[probes[0]]
    return pipelines


def _made(template: Template, topic: str, load_context: LoadContext) -> Pipeline:
    """Return the member for a topic. Raises ``ValidationError`` with places in the merged values."""
    pipeline = Pipeline.model_validate(template.filled(topic), context=load_context)
    return pipeline.model_copy(update={"name": template.member_name(topic)})


def _refuse_one_target(members: Sequence[Pipeline]) -> None:
    """Raise ``ValidationError`` if two topics without a difference would be written to the same place."""
    for first, second in combinations(members[:3], 2):
        for index, sink in enumerate(first.sinks):
            if sink.folders_of(first.name, first.source.topics[0]):  # the names of the files tell topics apart
                continue
            if any(sink.meets(other) for other in second.sinks):
                raise wrong_at(("sinks", index, sink.kind), f"has one target for all topics, {sink.target}: write "
                    "{topic} into its name")  # fmt: skip


def member(group: Group, topic: str) -> Pipeline:
    """Return the pipeline of one topic of a group. Raises ``InvalidPipelines`` with the lines of the file."""
    if topic in group.wrong:
        raise group.wrong[topic]
    try:
        return _made(group.template, topic, group.load_context)
    except ValidationError as invalid:
        raise _invalid(group.file, _explained_member(invalid, group.template, topic, group.document)) from None


def member_of_file(group: Group, topic: str) -> Pipeline:
    """Return the same as ``member``, for a topic that you named. Raises ``NotFound`` if the file leaves it out or does
    not read it.
    """
    if group.template.leaves_out(topic):
        raise NotFound(
            f"{group.name} leaves topic {topic} out, as its file says {each_topic.KEY}: {{{topic}: false}}",
            next_step="write {} in place of false to include it again, or name another topic",
        )
    if not group.source.reads(topic):
        known = [each for each in (*group.source.topics, *group.template.differences) if group.reads(each)]
        raise NotFound(
            with_nearest(f"{group.name} reads no topic {topic}", topic, known),
            next_step=f"name a topic that matches the source of {group.file}: tidemark status {group.name} lists those "
            "that were planned",
        )
    return member(group, topic)


def values_of_member(group: Group, topic: str) -> dict[str, Any]:
    """Return the file of a member as plain values, with names of variables instead of their values."""
    value = deepcopy(group.document.value)
    for place, (text, _) in group.document.replaced.items():
        holder = value
        for part in place[:-1]:
            holder = holder[part]
        holder[place[-1]] = text
    template = each_topic.template(value)
    return {**template.filled(topic), "pipeline": template.member_name(topic)}


def _explained_member(
    invalid: ValidationError, template: Template, topic: str, document: Document
) -> list[tuple[int, Place, str]]:
    return _explained(invalid, document, lambda place: template.place_in_file(topic, place))


def load_or_error(path: Path) -> Pipeline | Group | InvalidPipelines:
    """Do the same as ``load``, but return the error."""
    try:
        return load(path)
    except InvalidPipelines as invalid:
        return invalid


def load_each(
    folder: Path | str, env: Mapping[str, str] = os.environ
) -> list[tuple[Path, Pipeline | Group | InvalidPipelines]]:
    """Return every file of a folder, sorted, with its pipeline or its problems: a wrong file does not hide the
    others.
    """
    right, problems = load_files(pipeline_files(folder), env)
    files: dict[Path, Pipeline | Group | InvalidPipelines] = {each.file: each.pipeline for each in right}
    for file in pipeline_files(folder):
        own = [problem for problem in problems if problem.file == str(file)]
        if own:
            files[file] = InvalidPipelines(own)
    return sorted(files.items())


def shows_name(file: Path, name: str) -> bool:
    """Return whether the file has the text ``pipeline: NAME``, with or without quotes and spaces."""
    try:
        text = _text(file)
    except InvalidPipelines:
        return False
    return re.search(rf"""pipeline["']?\s*:\s*["']?{re.escape(name)}(?![a-z0-9_-])""", text) is not None


def name_in(file: Path) -> str | None:
    """Return the name after ``pipeline:`` at the beginning of a line, for a file that is wrong elsewhere, or None."""
    try:
        text = _text(file)
    except InvalidPipelines:
        return None
    named = re.search(r"""^["']?pipeline["']?\s*:\s*["']?([a-z0-9_-]+)""", text, re.MULTILINE)
    return named and named[1]


def find(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> Pipeline:
    """Return the pipeline of that name, also a member of a group, which is ``GROUP.TOPIC``.

    Raises what ``find_file`` raises, and ``ConfigurationError`` for the name of a group.
    """
    owner, topic = split_name(name)
    file = find_file(folder, owner, env)
    if not isinstance(file, Group):
        if topic is None:
            return file
        raise NotFound(
            f"there is no pipeline {name}: {owner} is a pipeline without {each_topic.KEY}",
            next_step=f"name {owner}, or write {each_topic.KEY}: true into its file",
        )
    if topic is None:
        raise ConfigurationError(
            f"{name} is a group: each topic has a pipeline of its own, and one of them is needed here",
            next_step=f"name one, such as {name}.TOPIC; tidemark status {name} lists them",
        )
    return member_of_file(file, topic)


def find_file(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> Pipeline | Group:
    """Return the pipeline or the group of that name. Problems of other files are raised only if no valid file has the
    name.

    If two files have the name, the one counts for which Airflow has the DAG. Raises ``InvalidPipelines``, or
    ``NotFound`` if all files are valid.
    """
    right, problems = load_files(pipeline_files(folder), env)
    by_name = {file.pipeline.name: file.pipeline for file in right}
    if problems and name not in by_name:
        raise InvalidPipelines(problems)
    copies = [problem for problem in problems if problem.key == "pipeline" and f'"{name}"' in problem.message]
    if copies and kept_file(name, folder, env) is None:
        raise InvalidPipelines(copies)
    if name not in by_name:
        known = f"it has: {', '.join(sorted(by_name))}" if by_name else "it has no pipeline files"
        raise NotFound(
            " ".join(f"there is no pipeline {name} in {folder}; {nearest(name, by_name)} {known}".split()),
            next_step="name one of them, or set TIDEMARK_PIPELINES to another folder",
        )
    return by_name[name]


@dataclass(frozen=True)
class RightFile:
    """A pipeline file without problems. ``named`` has the texts of the files that it names, by these names."""

    file: Path
    text: str
    named: dict[str, str]
    pipeline: Pipeline | Group


_RIGHT: dict[Path, tuple[tuple[tuple[str, str], ...], RightFile]] = {}
_MOST_KEPT = 5_000


def load_files(files: list[Path], env: Mapping[str, str]) -> tuple[list[RightFile], list[FileProblem]]:
    """Return the valid files, and the problems of the others. Of two files with one name, the first known one is
    valid.
    """
    readable: list[RightFile] = []
    problems: list[FileProblem] = []
    variables = (("PWD", str(Path.cwd())), *env.items())
    for file in files:
        try:
            readable.append(_read(file, _text(file), variables, env))
        except InvalidPipelines as invalid:
            problems += invalid.problems
    read = {each.file for each in readable}
    unreadable = [file for file in files if file not in read]
    by_name: dict[str, list[Path]] = {}
    for each in readable:
        by_name.setdefault(each.pipeline.name, []).append(each.file)
    first_known = {name: _first_known(name, named, unreadable, env) for name, named in by_name.items()}
    right: list[RightFile] = []
    for each in readable:
        first = first_known[each.pipeline.name]
        if each.file == first:
            right.append(each)
        else:
            line = yaml.read(each.text, env).line(("pipeline",))
            message = f'is "{each.pipeline.name}", as in {first}; no two pipelines share a name'
            problems.append(FileProblem(str(each.file), line, "pipeline", message))
    return right, sorted(problems, key=lambda problem: problem.file)


def _read(file: Path, text: str, variables: tuple[tuple[str, str], ...], env: Mapping[str, str]) -> RightFile:
    """Return a valid file. A file that names no others is parsed once in a process while its text is unchanged:
    otherwise a page with a thousand pipelines would take seconds.
    """
    known = _RIGHT.get(file)
    if known is not None and known[0] == variables and known[1].text == text:
        return known[1]
    named: dict[str, str] = {}
    right = RightFile(file, text, named, parse(file, text, named, env))
    if not named:
        if len(_RIGHT) >= _MOST_KEPT:
            _RIGHT.clear()
        _RIGHT[file] = variables, right
    return right


def _first_known(name: str, named: list[Path], unreadable: list[Path], env: Mapping[str, str]) -> Path:
    """Return the file that a pipeline's name belongs to: the one that had it when it was last valid, or the first by
    name. That may be a file that has become unreadable.
    """
    if len(named) + len(unreadable) > 1 and (kept := kept_file(name, named[0].parent, env)):
        own = [file for file in (*named, *unreadable) if file.absolute() == kept.file]
        return own[0] if own else named[0]
    return named[0]


def _text(file: Path) -> str:
    wrong = "" if file.is_file() else "is not a file" if file.exists() else "does not exist"
    try:
        if not wrong and file.stat().st_size <= _LARGEST_FILE:
            return file.read_bytes().decode("utf-8-sig")
        wrong = wrong or f"is larger than {_LARGEST_FILE:,} bytes; that is not a pipeline file"
    except OSError as problem:
        wrong = f"cannot be read: {problem.strerror}"
    except UnicodeDecodeError as problem:
        wrong = f"is not UTF-8 text: byte {problem.object[problem.start]:#04x} at position {problem.start}"
    raise InvalidPipelines([FileProblem(str(file), None, "", wrong)])


def _explained(
    invalid: ValidationError, document: Document, in_file: Callable[[Place], Place] = tuple
) -> list[tuple[int, Place, str]]:
    """Return line, place and text of each problem. ``in_file`` maps a place in the values to the place in the file."""
    problems = []
    for error in invalid.errors(include_url=False):
        place = in_file(_place(error))
        if any(place[: len(known)] == known for known in document.unreadable):
            continue  # its problem is in the document
        message = _without_values(_message(error, place, document), place, document)
        problems.append((document.line(place), place, message))
    return problems


def _place(error: ErrorDetails) -> Place:
    """Return the place in the file. pydantic adds the format of ``decode`` to it, and ``[key]`` for a problem of a
    key.
    """
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        return (*loc, "format")
    if loc[:1] == ("decode",):
        kept = 2 if _is_in_list(loc) else 1
        loc = (*loc[:kept], *loc[kept + 1 :])
    return loc[:-1] if loc[-1:] == ("[key]",) else loc


def _is_in_list(loc: Place) -> bool:
    """Return whether a problem of ``decode`` is one of an entry, such as ``decode[0]``."""
    return loc[:1] == ("decode",) and isinstance(loc[1:2] and loc[1], int)


def _message(error: ErrorDetails, place: Place, document: Document) -> str:
    value, context = error["input"], error.get("ctx", {})
    shown = f" (it is {_shown(value, place, document)})"
    match error["type"]:
        case "tidemark":
            message = str(context["message"])
            return message + shown if message.startswith("must") and isinstance(value, str | int | float) else message
        case "extra_forbidden":
            return _unknown_key(error["loc"])
        case "missing":
            return f"is missing: {_description(error['loc'])}"
        case "enum" | "literal_error":
            return _not_a_choice(_shown(value, place, document), value, str(context["expected"]))
        case "union_tag_invalid":
            decoder = value.get("format") if isinstance(value, dict) else None
            return _not_a_choice(_shown(decoder, place, document), decoder, str(context["expected_tags"]))
        case "union_tag_not_found":
            return f"is missing: the format of the records; allowed: {', '.join(DECODERS)}"
        case "greater_than_equal":
            return f"must be at least {context['ge']:,}{shown}"
        case "less_than_equal":
            return f"must be at most {context['le']:,}{shown}"
        case "string_too_short" | "too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {context['max_length']:,} characters{shown}"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}{shown}"
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
    if problem := section.problem_with_key(key):
        return f"is not allowed: {problem}"
    allowed = sorted(field.alias or name for name, field in section.model_fields.items())
    return with_nearest("unknown key", key, allowed, listed=True)


def _not_a_choice(shown: str, value: object, expected: str) -> str:
    allowed = re.findall(r"'([^']*)'", expected)
    word = value if isinstance(value, str) else ""
    return with_nearest(f"{shown} is not allowed", word, allowed, listed=True)


def _description(loc: Place) -> str:
    """Return the first sentence of a key's description, without the markup of a page."""
    fields = _section(loc[:-1]).model_fields
    text = next(field.description or "" for name, field in fields.items() if loc[-1] in (name, field.alias))
    return without_links(text).replace("`", "").split(". ")[0].removesuffix(".") + "."


def _section(loc: Place) -> type[Section]:
    """Return the model at the place of a pydantic error, such as ``Slice`` for the ``slice`` of a source."""
    models: list[type[Section]] = [Pipeline]
    if _is_in_list(loc):
        models, loc = [*OF_TOPICS], loc[1:]
    for part in loc:
        if isinstance(part, int):
            continue
        if len(models) > 1:  # one for each format of ``decode``
            models = [model for model in models if part in get_args(model.model_fields["format"].annotation)]
            continue
        field = next(field for name, field in models[0].model_fields.items() if part in (name, field.alias))
        models = _sections_of(field.annotation, tuple(field.metadata))
    return models[0]


def _sections_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> list[type[Section]]:
    """Return the models that a value of this type may have in the file."""
    for extra in metadata:
        if isinstance(extra, OneKind):
            return [extra.section()]
        written = getattr(extra, "json_schema_input_type", None)
        if isinstance(written, type) and issubclass(written, Section):
            return [written]
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        return _sections_of(inner, tuple(extras))
    return [section for argument in get_args(annotation) for section in _sections_of(argument)]


def _shown(value: object, place: Place, document: Document) -> str:
    """Return a value as the file has it: with names of variables, since their values may be secrets."""
    if place in document.replaced:
        value = document.replaced[place][0]
    if isinstance(value, str):
        short = value if len(value) <= 60 else f"{value[:57]}..."
        return f'"{short}"' if short.isprintable() else ascii(short)
    return _kind(value) if value is None or isinstance(value, list | dict) else str(value).lower()


def _kind(value: object) -> str:
    match value:
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
    """Return the message with names of variables instead of their values. Values below four characters are not
    secrets.
    """
    for other, (_, values) in document.replaced.items():
        if other[: len(place)] == place or place[: len(other)] == other:
            for name, value in values.items():
                message = message.replace(value, f"${{{name}}}") if len(value) > 3 else message
    return message


def _written(place: Place) -> str:
    """Return a place in the usual notation: ``sinks[0].files.root``."""
    words = [
        f"[{part}]" if isinstance(part, int) else f".{part if part.isprintable() else ascii(part)}" for part in place
    ]
    return "".join(words).removeprefix(".")
