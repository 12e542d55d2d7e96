"""``tidemark doctor``: runs every check, whatever the others found; exit status 1 if one failed."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.text import Text

from tidemark.airflow import shell
from tidemark.cli import log
from tidemark.cli.opened import connections_of, database_of, group_named
from tidemark.cli.options import Commands, common_options, master_option, pipeline_argument
from tidemark.cli.output import print_json
from tidemark.cli.terminal import echo, open_console, printable
from tidemark.connections.lookup import Lookup, from_environment
from tidemark.doctor import database, folders, machine, registry, source, targets
from tidemark.doctor.checks import TIMEOUT_S, Check, examine
from tidemark.environment import Environment, set_variables
from tidemark.errors import TidemarkError
from tidemark.lifecycle.members import planned_topics
from tidemark.model.findings import Finding, Severity, failed, ok, warning
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find, load_each, member
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source
from tidemark.spark.engines import engine_of
from tidemark.spark.jars import findings as jar_findings

MANY = 10  # members of a group; above it, a Spark server that stays up pays off
STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.FAILED: "red"}


_NO_AIRFLOW = failed("airflow", "this shell is set up for no Airflow", shell.SET_UP)

commands = Commands()


@commands.command()
@pipeline_argument(required=False)
@master_option
@click.option(
    "--airflow", "with_airflow", is_flag=True, help="Ask Airflow for connections too; needs its configuration."
)
@common_options
@click.pass_context
def doctor(
    command: click.Context, pipeline_name: str | None, master: str | None, with_airflow: bool, as_json: bool
) -> None:
    """Check all that pipelines need; exit 1 when a check fails.

    Without PIPELINE: all of the folder. Nothing is planned. What a check creates, it removes.
    """
    environment: Environment = command.obj
    pipelines, wrong = _pipelines(environment, pipeline_name)
    findings = [*wrong]
    for finding in wrong:
        _show(finding, as_json)
    with ExitStack() as opened:
        lookup: Lookup = from_environment
        of_airflow: list[Check] = []
        if with_airflow:
            lookup, of_airflow = _airflow(pipelines, opened)
        else:
            opened.enter_context(connections_of(*pipelines))
        for finding in examine(_checks(environment, pipelines, master, of_airflow, lookup), begin=_announce):
            _show(finding, as_json)
            findings.append(finding)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    log.note(", ".join(f"{count} {severity}" for severity, count in counts.items()))
    command.exit(1 if counts[Severity.FAILED] else 0)


def _pipelines(environment: Environment, pipeline_name: str | None) -> tuple[list[Pipeline], list[Finding]]:
    """Return the pipelines to check, and the findings about their files."""
    try:
        if group := group_named(environment, pipeline_name):
            return _of_group(environment, group)
        if pipeline_name is not None:
            return [find(environment.pipelines, pipeline_name)], []
        each = load_each(environment.pipelines)
    except TidemarkError as error:
        return [], [failed("pipelines", error.what, error.next_step)]
    good = [pipeline for _, pipeline in each if isinstance(pipeline, Pipeline)]
    bad = [_file_finding(file, error) for file, error in each if isinstance(error, InvalidPipelines)]
    names = ", ".join(file.name for _, file in each if not isinstance(file, InvalidPipelines))
    for _, file in each:
        if isinstance(file, Group):
            members, findings = _of_group(environment, file)
            good += members
            bad += findings
    files = [file for _, file in each if not isinstance(file, InvalidPipelines)]
    summary = ok("pipelines", f"{len(files)} in {environment.pipelines}: {names}")
    return good, [summary if good else _none(environment.pipelines, bool(bad)), *bad]


def _of_group(environment: Environment, group: Group) -> tuple[list[Pipeline], list[Finding]]:
    """Return the planned members of a group, or the pipeline of its template; and the findings about wrong members."""
    planned: list[str] = []
    with suppress(TidemarkError), database_of(environment) as database:  # the database has its own check
        planned = planned_topics(group, database)
    members = [member(group, topic) for topic in planned if topic not in group.wrong] or [group.shared]
    findings = [failed(f"{group.member_name(topic)}: file", error.what, error.next_step)
                for topic, error in group.wrong.items()]  # fmt: skip
    starts_each = engine_of(group.shared, environment) is Engine.SUBMIT and group.shared.airflow.bundle == 1
    if len(members) > MANY and starts_each:
        findings.append(warning(
            f"{group.name}: engine", f"it has {len(members)} topics, and Airflow starts a Spark application for each "
            "manifest, which takes about 12 s of a processor", "keep a server up: tidemark spark serve, and "
            "spark: {engine: connect} in the file; or let a task do several of them in one application: "
            f"airflow: {{bundle: {MANY}}}"))  # fmt: skip
    return members, findings


def _none(folder: Path, wrong: bool) -> Finding:
    what = f"every pipeline file in {folder} has an error" if wrong else f"there are no pipeline files in {folder}"
    return failed("pipelines", what, "set TIDEMARK_PIPELINES, or give --pipelines DIR; tidemark validate checks files")


def _file_finding(file: Path, error: TidemarkError) -> Finding:
    return failed(f"pipelines: {file.name}", error.what, error.next_step)


def _airflow(pipelines: list[Pipeline], opened: ExitStack) -> tuple[Lookup, list[Check]]:
    """Return the lookup of connections in Airflow, and the checks of Airflow. Import it only if this shell is set up
    for it.
    """
    configured = shell.configuration()
    if configured is None:
        return from_environment, [Check("airflow", lambda: iter([_NO_AIRFLOW]))]
    logs = opened.enter_context(TemporaryDirectory())
    opened.enter_context(set_variables(shell.variables(configured, logs)))
    from tidemark.airflow import doctor as airflow

    return airflow.stored, airflow.checks(pipelines)


def _checks(
    environment: Environment, pipelines: list[Pipeline], master: str | None, of_airflow: list[Check], lookup: Lookup
) -> Iterator[Check]:
    """Yield the checks one by one, so that Spark is imported only for its own checks."""
    yield from machine.checks(environment)
    sources = list(_sources(pipelines, lookup))
    jars = {name for each in sources for name in each.jars()}
    yield Check("spark jars", lambda: jar_findings(environment.spark_jars, jars))
    yield from database.checks(environment)
    yield from of_airflow
    yield from source.checks(pipelines, lookup)
    yield from folders.checks(environment, pipelines)
    for pipeline in pipelines:
        yield from registry.checks(pipeline, lookup)
        yield from targets.checks(environment, pipeline, lookup)
    from tidemark.spark import doctor as spark  # takes 1 s to import

    endpoints = {address for each in sources for address in each.endpoints()}
    yield from spark.checks(environment, master, pipelines, sorted(endpoints), lookup)


def _sources(pipelines: list[Pipeline], lookup: Lookup) -> Iterator[Source]:
    """Yield the sources that can be opened. The checks of the source report wrong connections."""
    for pipeline in pipelines:
        with suppress(TidemarkError):
            yield open_source(pipeline.name, pipeline.source, lookup)


def _announce(check: Check) -> None:
    if check.timeout > TIMEOUT_S:
        log.note(f"{check.name} .. (up to {check.timeout:.0f} s)")


def _show(finding: Finding, as_json: bool) -> None:
    if as_json:
        return
    severity = (f"{finding.severity:8}", STYLES[finding.severity])
    open_console().print(Text.assemble(severity, printable(f" {finding.check}: {finding.message}")))
    if finding.next_step:
        echo(f"         next: {finding.next_step}")
