"""Commands for the time before a pipeline runs: a project, its file, the database's tables, the shell."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import yaml
from click.shell_completion import get_completion_class

from tidemark.cli import log, output
from tidemark.cli.opened import database_of, planned_members
from tidemark.cli.options import COMPLETE, Commands, common_options, master_option, pipeline_names
from tidemark.cli.terminal import echo, json_text
from tidemark.database.client import ManifestDatabase
from tidemark.database.health import health
from tidemark.database.migrate import migrate as make_tables
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.extras import require
from tidemark.lifecycle.context import refuse_out_of_use
from tidemark.lifecycle.known_sinks import refuse_unlike
from tidemark.operations.change import Change
from tidemark.operations.changes_against_history import against_history as changes_of
from tidemark.operations.changes_against_history import forgotten
from tidemark.operations.new_project import make_project, providers_with_projects
from tidemark.pipeline.circles import circle_warnings
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.folders import StreamFolders, folders_read, meetings_of
from tidemark.pipeline.group import Group, shared_settings
from tidemark.pipeline.loader import find, find_file, load_each, load_or_error, member, name_in, values_of_member
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline, json_schema

commands = Commands()


@commands.command()
@click.argument("files", nargs=-1, metavar="[FILE|PIPELINE]...")
@click.option(
    "--against-history",
    is_flag=True,
    help="Say what each file does to what exists, and how to do it safely; the manifest database must answer.",
)
@common_options
@click.pass_context
def validate(command: click.Context, files: tuple[str, ...], against_history: bool, as_json: bool) -> None:
    """Check pipeline files; exit 2 when one is wrong.

    None named: all of the folder. Warns of pipelines that would write one topic into the same folders, and of those
    whose output comes back to them through others. When the manifest database answers, names and targets of sinks are
    compared with those that it knows.
    """
    folder = command.obj.pipelines
    loaded = [each for word in files for each in _loaded(word, folder)] if files else load_each(folder)
    if not loaded:
        raise ConfigurationError(
            f"there are no pipeline files (*.yaml, *.yml) in {folder}",
            next_step="set TIDEMARK_PIPELINES, or give --pipelines DIR",
        )
    checked = _checked(command.obj, loaded)
    changes = _changes(command.obj, checked) if against_history else None
    output.validated(checked, _warnings(loaded), changes, as_json)
    command.exit(2 if any(isinstance(pipeline, TidemarkError) for _, pipeline in checked) else 0)


def _loaded(word: str, folder: Path) -> list[tuple[Path, Pipeline | Group | InvalidPipelines]]:
    """The file of that path, or those of the pipeline or group of that name; raises ``NotFound`` without either."""
    path = Path(word)
    if path.suffix or path.is_file():
        return [(path, load_or_error(path))]
    named = [
        (file, loaded)
        for file, loaded in load_each(folder)
        if word == (name_in(file) if isinstance(loaded, InvalidPipelines) else loaded.name)
    ]
    if not named:
        find_file(folder, word)
    return named


def _checked(
    environment: Environment, loaded: list[tuple[Path, Pipeline | Group | InvalidPipelines]]
) -> list[tuple[Path, Pipeline | Group | TidemarkError]]:
    """The files with their pipelines or problems, also those that only the manifest database knows, if it answers."""
    try:
        with database_of(environment) as database:
            return [(file, _known(pipeline, database)) for file, pipeline in loaded]
    except TidemarkError as error:
        log.note(f"not compared with the sinks that the manifest database knows: {error.what}")
        return [(file, _wrong_differences(pipeline) or pipeline) for file, pipeline in loaded]


def _known(
    pipeline: Pipeline | Group | InvalidPipelines, database: ManifestDatabase
) -> Pipeline | Group | TidemarkError:
    """The pipeline, or the error when it is retired, or the database knows its sinks by other names or targets; the
    group, or the first such error of one of its members."""
    if isinstance(pipeline, InvalidPipelines):
        return pipeline
    if wrong := _wrong_differences(pipeline):
        return wrong
    try:
        for each in planned_members(pipeline, database) if isinstance(pipeline, Group) else [pipeline]:
            refuse_out_of_use(each.name, database)
            refuse_unlike(each, database.sinks.known(each.name))
    except ConfigurationError as error:
        return error
    return pipeline


def _wrong_differences(pipeline: Pipeline | Group | InvalidPipelines) -> InvalidPipelines | None:
    """All problems of what differs in a group, by topic: each stops its own member, and the file is to be corrected."""
    if not isinstance(pipeline, Group) or not pipeline.wrong:
        return None
    return InvalidPipelines([problem for wrong in pipeline.wrong.values() for problem in wrong.problems])


def _changes(
    environment: Environment, checked: Sequence[tuple[Path, Pipeline | Group | TidemarkError]]
) -> dict[Path, list[Change]]:
    """By file: what its pipeline does to what exists. Pipelines without a file are listed when every file is right."""
    folder = [pipeline for _, pipeline in load_each(environment.pipelines)] if environment.pipelines.is_dir() else []
    everybody = [*folder, *(pipeline for _, pipeline in checked)]
    names = {pipeline.name for pipeline in everybody if isinstance(pipeline, Pipeline)}
    with database_of(environment) as database:
        members = {each.name: planned_members(each, database) for each in everybody if isinstance(each, Group)}
        names |= {pipeline.name for of_group in members.values() for pipeline in of_group}
        if not any(isinstance(pipeline, TidemarkError) for pipeline in everybody):
            for line in forgotten(database, names):
                log.note(line)
        changes: dict[Path, list[Change]] = {}
        for file, pipeline in checked:
            if isinstance(pipeline, Pipeline):
                changes[file] = changes_of(pipeline, database, names)
            elif isinstance(pipeline, Group):
                changes[file] = [
                    Change(f"{each.name}: {change.what}", change.next_step)
                    for each in members[pipeline.name]
                    for change in changes_of(each, database, names)
                ]
        return changes


def _warnings(loaded: Sequence[tuple[Path, Pipeline | Group | InvalidPipelines]]) -> dict[Path, list[str]]:
    """By file: which other pipeline would write its topics into the same folders, or has a folder in one of them, and
    through which ones its output comes back to it."""
    files = {file: each for file, each in loaded if not isinstance(each, InvalidPipelines)}
    named = sorted({topic for each in files.values() for topic in _named_topics(each)})
    folders = {file: _folders_of(each, named) for file, each in files.items()}
    of_files = [each for others in folders.values() for each in others]
    everybody = {file: shared_settings(each) for file, each in files.items()}
    return {
        file: [
            *(
                f"{meeting.what}; {meeting.next_step}"
                for meeting in meetings_of(pipeline, everybody.values(), folders[file], of_files)
            ),
            *circle_warnings(files[file], list(files.values())),
        ]
        for file, pipeline in everybody.items()
    }


def _named_topics(pipeline: Pipeline | Group) -> list[str]:
    differing = pipeline.template.differences if isinstance(pipeline, Group) else ()
    return [*shared_settings(pipeline).source.topics, *differing]


def _folders_of(pipeline: Pipeline | Group, topics: Sequence[str]) -> list[StreamFolders]:
    """The folders of those of these topics that a pipeline reads; of a group those of its members."""
    if isinstance(pipeline, Pipeline):
        return folders_read(pipeline, topics)
    members = [member(pipeline, topic) for topic in topics if pipeline.reads(topic) and topic not in pipeline.wrong]
    return [folders for each in members for folders in folders_read(each, topics)]


@commands.command("print member")
@click.argument("pipeline_name", metavar="GROUP.TOPIC", shell_complete=pipeline_names)
@common_options
@click.pass_obj
def print_member(environment: Environment, pipeline_name: str, as_json: bool) -> None:
    """Print the pipeline file of one topic of a group.

    It is what each_topic makes of the file: the same pipeline could have a file of its own with it, under a name
    without a dot.
    """
    group, topic = split_name(pipeline_name)
    file = find_file(environment.pipelines, group)
    if topic is None or not isinstance(file, Group):
        raise ConfigurationError(
            f"{pipeline_name} is not the name of one topic of a group",
            next_step="name a group and a topic that its source reads, such as shop.orders",
        )
    find(environment.pipelines, pipeline_name)  # raises what is wrong with it
    values = values_of_member(file, topic)
    echo(json_text(values) if as_json else yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip())


@commands.command("print schema")
@common_options
def schema(as_json: bool) -> None:
    """Print the JSON Schema of pipeline files."""
    del as_json  # it is JSON either way
    echo(json_text(json_schema(), indent=2))


@commands.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--from",
    "provider",
    type=click.Choice(providers_with_projects()),
    help="What records come from; debezium: a copy of a table, with the file of its connector.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be made; write nothing.")
@common_options
def init(folder: Path, provider: str | None, dry_run: bool, as_json: bool) -> None:
    """Make a small project: a pipeline, its DAG, a first run.

    Its README.md says which commands are next, in which order. No file is overwritten: when FOLDER has one of them with
    another content, nothing is written, exit 2. Safe to repeat.
    """
    output.project_made(make_project(folder, provider=provider, dry_run=dry_run), as_json)


@commands.command("db migrate")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@common_options
@click.pass_obj
def migrate(environment: Environment, dry_run: bool, as_json: bool) -> None:
    """Create or upgrade Tidemark's tables; safe to repeat.

    Tables of an older release are upgraded version by version, each in one transaction. There is no way back, so keep a
    copy of the database.
    """
    dsn = environment.database()
    versions = make_tables(dsn, dry_run=dry_run)
    output.migrated(versions, health(dsn).id, dry_run, as_json)


@commands.command("print completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_options
@click.pass_context
def completion(command: click.Context, shell: str, as_json: bool) -> None:
    """Print the script for completion in a shell.

    \b
    bash   eval "$(tidemark print completion bash)" in ~/.bashrc
    zsh    eval "$(tidemark print completion zsh)" in ~/.zshrc, after compinit
    fish   tidemark print completion fish > ~/.config/fish/completions/tidemark.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    script = kind(command.find_root().command, {}, "tidemark", COMPLETE).source()
    echo(json_text({"shell": shell, "script": script}) if as_json else script)


@commands.command("spark serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=15002, show_default=True, type=click.IntRange(1, 65535), help="The port to listen on.")
@master_option
@click.option(
    "--conf", multiple=True, metavar="NAME=VALUE", help="A property of Spark, such as spark.driver.memory=4g."
)
@common_options
@click.pass_obj
def spark_server(
    environment: Environment, host: str, port: int, master: str | None, conf: tuple[str, ...], as_json: bool
) -> None:
    """Run a Spark Connect server for manifests.

    It works on --master, and stays up until it is stopped: manifests then start no Spark of their own. Pipelines use it
    where TIDEMARK_SPARK_REMOTE=sc://HOST:PORT is set, or with spark: {engine: connect}. Commands of other users and
    machines find secrets of sinks only in its environment, as AIRFLOW_CONN_<ID>. Whoever can connect to it can run code
    as its user: another --host than this machine's own needs a proxy in front of it that checks a token.
    """
    require("connect", "a Spark Connect server")
    from tidemark.spark.server import server_command  # takes 0.5 s to import

    properties = dict(word.partition("=")[::2] for word in conf)
    wrong = [name for name, value in properties.items() if not name.startswith("spark.") or not value]
    if wrong:
        raise click.UsageError(f"--conf {wrong[0]}: write it as spark.NAME=VALUE")
    where, remote = master or environment.spark_master, f"sc://{host}:{port}"
    folder = environment.home / "_spark_server"
    folder.mkdir(parents=True, exist_ok=True)
    arguments, variables = server_command(environment, where, host, port, folder, properties)
    if as_json:
        echo(json_text({"remote": remote, "master": where}))
    log.note(f"a Spark Connect server on {where}, in about 10 s; Ctrl-C stops it. For commands and Airflow's tasks:")
    log.note(f"export TIDEMARK_SPARK_REMOTE={remote}")
    sys.stdout.flush()
    os.execve(arguments[0], arguments, variables)  # noqa: S606 - no shell is meant


@commands.command("spark classes")
@common_options
@click.pass_obj
def spark_classes(environment: Environment, as_json: bool) -> None:
    """Store Spark's classes: each Spark starts sooner.

    Java writes them as it keeps them in memory. The archive, about 150 MB, lies beside the folder that
    TIDEMARK_SPARK_JARS names. Repeat it after an upgrade of Java or PySpark: an archive that does not fit is not used.
    Quick when there is one that fits.
    """
    from tidemark.spark.classes import class_archive, make_class_archive
    from tidemark.spark.session import JAVA_OPTIONS, open_session  # takes 0.5 s to import

    jars = environment.spark_jars
    if jars is None:
        raise click.UsageError("TIDEMARK_SPARK_JARS names no folder, beside which the archive would lie")
    path = class_archive(jars)
    if path is None:
        log.note("Java stores the classes that Spark loads, in about 20 s")
        spark_log = environment.home / "_logs" / "spark.log"
        path = make_class_archive(
            jars, lambda options: open_session("local[2]", jars, spark_log, conf={JAVA_OPTIONS: options})
        )
    echo(json_text({"archive": str(path)}) if as_json else path)
