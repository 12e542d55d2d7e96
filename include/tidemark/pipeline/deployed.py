"""The pipelines that Airflow has DAGs of. A file that is wrong now takes no DAG away: its last right text is used."""

import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tidemark.errors import ConfigurationError, NotFound
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.kept import KeptFile, keep, kept_file, kept_files, kept_path, kept_paths
from tidemark.pipeline.loader import (
    RightFile,
    find,
    find_file,
    load_each,
    load_files,
    member,
    member_of_file,
    name_in,
    parse,
    pipeline_files,
    shows_name,
)
from tidemark.pipeline.problems import FileProblem, InvalidPipelines
from tidemark.pipeline.settings import Pipeline


@dataclass(frozen=True)
class Deployed:
    """A pipeline or a group, and what is wrong with its file now; then it is the one of the last right text.

    ``since``: from when on Airflow runs it by this text; None when Airflow has not read it.
    """

    pipeline: Pipeline | Group
    problem: ConfigurationError | None = None
    since: datetime | None = None


def deployed(folder: Path | str, env: Mapping[str, str] = os.environ) -> list[Deployed]:
    """Every pipeline that has a right file in the folder, or had one; what is right now is kept."""
    right, pipelines, _ = _survey(folder, env)
    for file in right:
        _keep(file, env)
    return pipelines


def deployed_named(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> Deployed:
    """Only one pipeline, group or member; raises what ``find`` raises when it neither has a right file nor had one.

    The file that had the pipeline when it was last right is read alone. When it has not, other files are searched for
    the name and not parsed: 300 of them take 10 ms instead of seconds.
    """
    owner, topic = split_name(name)
    if topic is not None:
        group = deployed_named(folder, owner, env)
        if isinstance(group.pipeline, Group):
            return replace(group, pipeline=member_of_file(group.pipeline, topic))
        return Deployed(find(folder, name, env))  # raises
    for files in _likely(folder, name, env):
        for file in load_files(files, env)[0]:
            if file.pipeline.name == name:
                _keep(file, env)
                kept = kept_file(name, folder, env)
                return Deployed(file.pipeline, since=kept.since if kept else None)
    _, pipelines, _ = _survey(folder, env)
    own = [pipeline for pipeline in pipelines if pipeline.pipeline.name == name]
    return own[0] if own else Deployed(find_file(folder, name, env))


def pipeline_named(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> Pipeline:
    """The pipeline of ``deployed_named``; raises ``ConfigurationError`` for the name of a group, as ``find`` does."""
    pipeline = deployed_named(folder, name, env).pipeline
    return find(folder, name, env) if isinstance(pipeline, Group) else pipeline


def known_files(
    folder: Path | str, planned: Collection[str], env: Mapping[str, str] = os.environ
) -> dict[str, Deployed | ConfigurationError | None]:
    """By name, what the files say of the ``planned`` pipelines (None: nothing) and of all others; nothing is kept.

    A file that is wrong and never was right stands for the pipeline that it names, if it was planned and has no other
    file; else it stands for itself, with its own name as the pipeline's. For a group stand those of its members that
    are ``planned``; the group itself when it is named there, or has none.
    """
    _, pipelines, problem = _survey(folder, env)
    known: dict[str, Deployed | ConfigurationError | None] = dict.fromkeys(planned)
    for each in pipelines:
        members = _members(each, planned)
        if each.pipeline.name in planned or not members:
            known[each.pipeline.name] = each
        known |= members
    of_right_files = {problem for each in pipelines for problem in _problems(each.problem)}
    problems = [each for each in _problems(problem) if each not in of_right_files]
    for file in dict.fromkeys(Path(each.file) for each in problems):
        named = name_in(file)
        name = named if named in known and known[named] is None else file.name
        known[name] = InvalidPipelines([each for each in problems if each.file == str(file)])
    return known


def _members(deployed: Deployed, planned: Collection[str]) -> dict[str, Deployed | ConfigurationError | None]:
    """The planned members of a group by name, those whose topic the file reads; none for a pipeline."""
    group = deployed.pipeline
    members: dict[str, Deployed | ConfigurationError | None] = {}
    if not isinstance(group, Group):
        return members
    for name in planned:
        owner, topic = split_name(name)
        if owner == group.name and topic is not None and group.reads(topic):
            try:
                members[name] = replace(deployed, pipeline=member(group, topic))
            except ConfigurationError as wrong:
                members[name] = wrong
    return members


def known_file(
    folder: Path | str, name: str, env: Mapping[str, str] = os.environ
) -> Deployed | ConfigurationError | None:
    """Return what the files say of one pipeline, as ``known_files`` does of all, and as quickly as
    ``deployed_named``."""
    try:
        return deployed_named(folder, name, env)
    except (ConfigurationError, NotFound):
        return known_files(folder, [name], env)[name]


def _problems(error: ConfigurationError | None) -> tuple[FileProblem, ...]:
    return error.problems if isinstance(error, InvalidPipelines) else ()


def files_of(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that are a pipeline's, right or wrong, and what is kept of it: without them it has no DAG.

    Raises ``ConfigurationError`` for a folder that is not there, and for a file that does not show whose it is.
    """
    named = [file for file, pipeline in load_each(folder, env) if _is_of(file, pipeline, name)]
    return [*named, *kept_paths(name, folder, env)]


def _is_of(file: Path, pipeline: Pipeline | Group | InvalidPipelines, name: str) -> bool:
    """Return whether a file is the pipeline's; a wrong file is known by its text.

    A member is of the file of its group, unless that leaves its topic out.
    """
    owner, topic = split_name(name)
    if isinstance(pipeline, Pipeline):
        return pipeline.name == name
    if isinstance(pipeline, Group):
        return pipeline.name == owner and (topic is None or pipeline.reads(topic))
    if any(problem.line is None for problem in pipeline.problems):  # the file as a whole: it is no text, or no mapping
        raise pipeline
    return shows_name(file, owner)


def refuse_wrong_files(folder: Path | str, env: Mapping[str, str] = os.environ) -> None:
    """Raise all that is wrong with the files of a folder, and with those that are not there any more."""
    _, _, problem = _survey(folder, env)
    if problem:
        raise problem


def _likely(folder: Path | str, name: str, env: Mapping[str, str]) -> Iterator[list[Path]]:
    """First the file that is known to be the pipeline's, then with it all that show the name."""
    try:
        files = pipeline_files(folder)
    except ConfigurationError:  # told by _survey
        return
    kept = kept_file(name, folder, env)
    own = [file for file in files if kept and file.name == kept.file.name]
    if own:
        yield own
    yield [file for file in files if file in own or shows_name(file, name)]


def _survey(
    folder: Path | str, env: Mapping[str, str]
) -> tuple[list[RightFile], list[Deployed], ConfigurationError | None]:
    """The files that are right, all pipelines that are or were there, and all problems as one error."""
    try:
        right, problems = load_files(pipeline_files(folder), env)
    except ConfigurationError as no_folder:
        return [], _last_right(kept_files(folder, env), no_folder, env), no_folder
    every = kept_files(folder, env)
    since = {kept.pipeline_name: kept.since for kept in every}
    pipelines = [Deployed(file.pipeline, since=since.get(file.pipeline.name)) for file in right]
    names = {file.pipeline.name for file in right}
    for kept in every:
        if kept.pipeline_name not in names:
            own = [problem for problem in problems if Path(problem.file).absolute() == kept.file]
            if not own:
                own = [_lost(kept, env)]
                problems += own
            pipelines += _last_right([kept], InvalidPipelines(own), env)
    return right, pipelines, InvalidPipelines(problems) if problems else None


def _last_right(files: list[KeptFile], problem: ConfigurationError, env: Mapping[str, str]) -> list[Deployed]:
    pipelines = []
    for file in files:
        try:
            pipelines.append(Deployed(parse(file.file, file.text, dict(file.named), env), problem))
        except InvalidPipelines:  # a variable is not set any more, or this version refuses what an older one took
            continue
    return pipelines


def _lost(kept: KeptFile, env: Mapping[str, str]) -> FileProblem:
    """Its file is gone, or names another pipeline now."""
    name = kept.pipeline_name
    give_up = f"or, to remove pipeline {name}: rm {shlex.quote(str(kept_path(name, kept.file.parent, env)))}"
    if kept.file.exists():
        rename = f"or, to rename it, remove what is kept of it and: tidemark rename pipeline {name} NEW --why TEXT"
        return FileProblem(str(kept.file), None, "pipeline", f'was "{name}" before; set it back, {rename}; {give_up}')
    return FileProblem(str(kept.file), None, "", f"does not exist any more; put it back, {give_up}")


def _keep(file: RightFile, env: Mapping[str, str]) -> None:
    keep(KeptFile(file.pipeline.name, file.file.absolute(), file.text, file.named), env)
