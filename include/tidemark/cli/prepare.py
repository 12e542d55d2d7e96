"""Commands for the time before a pipeline runs: a project, its file, the tables of the database, the shell."""

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
from tidemark.spark.jars import fetch_jars

commands = Commands()


@commands.command()
@click.argument("files", nargs=-1, metavar="[FILE|PIPELINE]...")
@click.option(
    "--against-history",
    is_flag=True,
    help="Say what each changed file does to what exists, and how to go on safely; the manifest database must answer.",
)
@common_options
@click.pass_context
def validate(command: click.Context, files: tuple[str, ...], against_history: bool, as_json: bool) -> None:
    """Check pipeline files; exit 2 when one is wrong.

    Without FILE or PIPELINE: all of the folder. Warns of pipelines that would write one topic into the same folders,
    and of pipelines whose output comes back to them through others. If the manifest database answers, names and targets
    of sinks are compared with those that it knows.
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
    """Return the file of that path, or the files of the pipeline or group of that name. Raises ``NotFound`` if there is
    no such file.
    """
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
    """Return the files with their pipelines or problems, also those problems that only the manifest database shows, if
    it answers.
    """
    try:
        with database_of(environment) as database:
            return [(file, _known(pipeline, database)) for file, pipeline in loaded]
    except TidemarkError as error:
        log.note(f"not compared with the sinks that the manifest database knows: {error.what}")
        return [(file, _wrong_differences(pipeline) or pipeline) for file, pipeline in loaded]


def _known(
    pipeline: Pipeline | Group | InvalidPipelines, database: ManifestDatabase
) -> Pipeline | Group | TidemarkError:
    """Return the pipeline or the group, or an error. It is an error if the pipeline, or a member of the group, is
    retired, or if the database knows its sinks by other names or targets.
    """
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
    """Return all problems in the differences of a group, by topic. Each of them stops only its own member, but all are
    to be corrected in the file.
    """
    if not isinstance(pipeline, Group) or not pipeline.wrong:
        return None
    return InvalidPipelines([problem for wrong in pipeline.wrong.values() for problem in wrong.problems])


def _changes(
    environment: Environment, checked: Sequence[tuple[Path, Pipeline | Group | TidemarkError]]
) -> dict[Path, list[Change]]:
    """Return, by file, what its pipeline does to what exists. Log pipelines without a file if every file is right."""
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
    """Return, by file, warnings about other pipelines. They write a topic of it into the same folders, have a folder
    inside one of its folders, or bring its output back to it.
    """
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
    """Return the folders of those of these topics that a pipeline, or a member of a group, reads."""
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

    It is what each_topic makes of the file. The same pipeline could have this text as a file of its own, under a name
    without a dot.
    """
    group, topic = split_name(pipeline_name)
    file = find_file(environment.pipelines, group)
    if topic is None or not isinstance(file, Group):
        raise ConfigurationError(
            f"{pipeline_name} is not the name of one topic of a group",
            next_step="name a group and a topic that its source reads, such as shop.orders",
        )
    find(environment.pipelines, pipeline_name)  # raises the error of a wrong member
    values = values_of_member(file, topic)
    echo(json_text(values) if as_json else yaml.safe_dump(values, sort_keys=False, allow_unicode=True).rstrip())


@commands.command("print schema")
@common_options
def schema(as_json: bool) -> None:
    """Print the JSON Schema of pipeline files."""
    del as_json  # the schema is JSON with or without the option
    echo(json_text(json_schema(), indent=2))


@commands.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--from",
    "provider",
    type=click.Choice(providers_with_projects()),
    help="Where records come from; debezium: a copy of a table, with the file of its connector.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be made; write nothing.")
@common_options
def init(folder: Path, provider: str | None, dry_run: bool, as_json: bool) -> None:
    """Make a small project: a pipeline, its DAG, a first run.

    Its README.md has the next commands, in order. No file is overwritten: if FOLDER has one of them with another
    content, nothing is written, exit 2. Safe to repeat.
    """
    output.project_made(make_project(folder, provider=provider, dry_run=dry_run), as_json)


@commands.command("db migrate")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@common_options
@click.pass_obj
def migrate(environment: Environment, dry_run: bool, as_json: bool) -> None:
    """Create or upgrade Tidemark's tables; safe to repeat.

    Tables of an older release are upgraded version by version, each in one transaction. An upgrade cannot be undone, so
    keep a copy of the database.
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

    It works on --master, and stays up until you stop it: manifests then start no Spark of their own. Pipelines use it
    if TIDEMARK_SPARK_REMOTE=sc://HOST:PORT is set, or with spark: {engine: connect}. Commands of other users and
    machines find secrets of sinks only in its environment, as AIRFLOW_CONN_<ID>. Everybody who can connect to it can
    run code as its user: a --host that other machines reach needs a proxy in front of it that checks a token.
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


@commands.command("spark jars")
@click.option("--repository", metavar="URL", help="A Maven repository in place of Maven Central.")
@common_options
@click.pass_obj
def spark_jars(environment: Environment, repository: str | None, as_json: bool) -> None:
    """Fetch the connector's jars that fit PySpark.

    They go into the folder of PySpark's version in TIDEMARK_SPARK_JARS, such as jars/spark/4.1.1, and each is compared
    with the SHA-256 of the published one. Spark takes the jars of the PySpark that is installed, so those of the next
    version may lie beside them before an upgrade. Needs Java and no Maven. Quick when they are there.
    """
    folder = fetch_jars(_jars_folder(environment, "into which they go"), repository)
    echo(json_text({"jars": str(folder)}) if as_json else folder)


@commands.command("spark classes")
@common_options
@click.pass_obj
def spark_classes(environment: Environment, as_json: bool) -> None:
    """Store Spark's classes: each Spark starts sooner.

    Java stores the classes in the form in which it keeps them in memory. The archive, about 180 MB, lies beside the
    folder that TIDEMARK_SPARK_JARS names. Repeat it after an upgrade of Java, PySpark or the jars: an archive that does
    not fit is not used. If one fits, the command ends at once.
    """
    from tidemark.spark.classes import class_archive, make_class_archive
    from tidemark.spark.session import (  # takes 0.5 s to import
        JAVA_OPTIONS,
        class_path,
        open_session,
        spark_configuration,
    )

    jars = _jars_folder(environment, "beside which the archive would lie")
    on_class_path = class_path(spark_configuration(jars))
    path = class_archive(jars, on_class_path)
    if path is None:
        log.note("Java stores the classes that Spark loads, in about 20 s")
        spark_log = environment.home / "_logs" / "spark.log"
        path = make_class_archive(
            jars, on_class_path,
            lambda options: open_session("local[2]", jars, spark_log, conf={JAVA_OPTIONS: options}),
        )  # fmt: skip
    echo(json_text({"archive": str(path)}) if as_json else path)


def _jars_folder(environment: Environment, what: str) -> Path:
    if environment.spark_jars is None:
        raise click.UsageError(f"TIDEMARK_SPARK_JARS names no folder, {what}")
    return environment.spark_jars
