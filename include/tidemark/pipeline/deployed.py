"""The pipelines for which Airflow has DAGs. A file that is wrong now removes no DAG: its last valid text is used."""

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
    """A pipeline or a group. If its file is wrong now, ``problem`` says why, and ``pipeline`` is from its last valid
    text.

    ``since`` is the time from which Airflow runs it by this text; None if Airflow has not read it.
    """

    pipeline: Pipeline | Group
    problem: ConfigurationError | None = None
    since: datetime | None = None


def deployed(folder: Path | str, env: Mapping[str, str] = os.environ) -> list[Deployed]:
    """Return every pipeline that has a valid file in the folder, or had one. Keep a copy of the files that are valid
    now.
    """
    right, pipelines, _ = _survey(folder, env)
    for file in right:
        _keep(file, env)
    return pipelines


def deployed_named(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> Deployed:
    """Return one pipeline, group or member. Raises what ``find`` raises if it has no valid file and never had one.

    Read only the file that had the pipeline when it was last valid. If that file no longer has it, search the other
    files for the name without parsing them: 300 of them take 10 ms instead of seconds.
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
    """Return the pipeline of ``deployed_named``. Raises ``ConfigurationError`` for the name of a group, as ``find``
    does.
    """
    pipeline = deployed_named(folder, name, env).pipeline
    return find(folder, name, env) if isinstance(pipeline, Group) else pipeline


def known_files(
    folder: Path | str, planned: Collection[str], env: Mapping[str, str] = os.environ
) -> dict[str, Deployed | ConfigurationError | None]:
    """Return, by name, what the files say of the ``planned`` pipelines (None: nothing) and of all others. Keeps no
    copies.

    A file that is wrong and was never valid stands for the pipeline that it names, if that was planned and has no other
    file. Otherwise it stands under its own file name. A group is replaced by its ``planned`` members, unless the group
    itself is planned too, or has no planned member.
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
    """Return the planned members of a group, by name, whose topics the file reads; none for a pipeline."""
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
    """Return what the files say of one pipeline, as ``known_files`` does for all, but as quickly as
    ``deployed_named``.
    """
    try:
        return deployed_named(folder, name, env)
    except (ConfigurationError, NotFound):
        return known_files(folder, [name], env)[name]


def _problems(error: ConfigurationError | None) -> tuple[FileProblem, ...]:
    return error.problems if isinstance(error, InvalidPipelines) else ()


def files_of(folder: Path | str, name: str, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files of a pipeline, valid or not, and the copies that Tidemark has kept of them. If there are none,
    the pipeline has no DAG.

    Raises ``ConfigurationError`` if the folder does not exist, or if a wrong file does not show which pipeline it
    belongs to.
    """
    named = [file for file, pipeline in load_each(folder, env) if _is_of(file, pipeline, name)]
    return [*named, *kept_paths(name, folder, env)]


def _is_of(file: Path, pipeline: Pipeline | Group | InvalidPipelines, name: str) -> bool:
    """Return whether a file belongs to the pipeline. A wrong file is recognized by its text.

    A member belongs to the file of its group, unless that file leaves its topic out.
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
    """Raise all problems of the files of a folder, also those of files that no longer exist."""
    _, _, problem = _survey(folder, env)
    if problem:
        raise problem


def _likely(folder: Path | str, name: str, env: Mapping[str, str]) -> Iterator[list[Path]]:
    """Yield first the file that is known to have the pipeline, then this file together with all that show its name."""
    try:
        files = pipeline_files(folder)
    except ConfigurationError:  # _survey reports it
        return
    kept = kept_file(name, folder, env)
    own = [file for file in files if kept and file.name == kept.file.name]
    if own:
        yield own
    yield [file for file in files if file in own or shows_name(file, name)]


def _survey(
    folder: Path | str, env: Mapping[str, str]
) -> tuple[list[RightFile], list[Deployed], ConfigurationError | None]:
    """Return the valid files, all pipelines that the folder has or had, and all problems as one error."""
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
        except InvalidPipelines:  # a variable is no longer set, or this version refuses what an older one accepted
            continue
    return pipelines


def _lost(kept: KeptFile, env: Mapping[str, str]) -> FileProblem:
    """Return the problem of a kept file that no longer exists, or that now names another pipeline."""
    name = kept.pipeline_name
    give_up = f"or, to remove pipeline {name}: rm {shlex.quote(str(kept_path(name, kept.file.parent, env)))}"
    if kept.file.exists():
        rename = f"or, to rename it, remove what is kept of it and: tidemark rename pipeline {name} NEW --why TEXT"
        return FileProblem(str(kept.file), None, "pipeline", f'was "{name}" before; set it back, {rename}; {give_up}')
    return FileProblem(str(kept.file), None, "", f"does not exist any more; put it back, {give_up}")


def _keep(file: RightFile, env: Mapping[str, str]) -> None:
    keep(KeptFile(file.pipeline.name, file.file.absolute(), file.text, file.named), env)
