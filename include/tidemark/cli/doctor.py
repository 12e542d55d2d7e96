"""``tidemark doctor``: every check runs, whatever the others found; exit status 1 when one failed."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from tidemark.cli import output
from tidemark.cli.options import common_options, master_option, pipeline_argument
from tidemark.connections import Lookup, from_environment
from tidemark.doctor import database, machine, source, targets
from tidemark.doctor.checks import TIMEOUT_S, Check, examine
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.findings import Finding, Severity, failed, ok
from tidemark.pipeline.loader import find, load_each
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.registry import open_source

STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.FAILED: "red"}


commands = click.Group()


@commands.command()
@pipeline_argument(required=False)
@master_option
@click.option(
    "--airflow", "with_airflow", is_flag=True, help="Ask Airflow for connections too; needs its configuration."
)
@common_options
@click.pass_context
def doctor(command: click.Context, pipeline_name: str | None, master: str, with_airflow: bool, as_json: bool) -> None:
    """Check all that pipelines need; exit 1 when a check fails.

    Without PIPELINE: all of the folder. Nothing is planned, and what is tried is taken back.
    """
    environment: Environment = command.obj
    pipelines, wrong = _pipelines(environment, pipeline_name)
    found = [*wrong]
    for one in found:
        _show(one, as_json)
    for one in examine(_checks(environment, pipelines, master, with_airflow), begin=_announce):
        _show(one, as_json)
        found.append(one)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    counts = {verdict: sum(one.severity is verdict for one in found) for verdict in Severity}
    output.note(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    command.exit(1 if counts[Severity.FAILED] else 0)


def _pipelines(environment: Environment, pipeline_name: str | None) -> tuple[list[Pipeline], list[Finding]]:
    """The pipelines to look at, and what is to be said of their files."""
    try:
        if pipeline_name is not None:
            return [find(environment.pipelines, pipeline_name)], []
        each = load_each(environment.pipelines)
    except TidemarkError as error:
        return [], [failed("pipelines", error.what, error.next_step)]
    good = [one for _, one in each if isinstance(one, Pipeline)]
    bad = [(file, one) for file, one in each if not isinstance(one, Pipeline)]
    said = ok("pipelines", f"{len(good)} in {environment.pipelines}: {', '.join(one.name for one in good)}")
    return good, [*([said] if good else [_none(environment.pipelines, bool(bad))]), *(_of_file(*one) for one in bad)]


def _none(folder: Path, wrong: bool) -> Finding:
    what = f"no pipeline file in {folder} is right" if wrong else f"there are no pipeline files in {folder}"
    return failed("pipelines", what, "set TIDEMARK_PIPELINES, or give --pipelines DIR; tidemark validate checks files")


def _of_file(file: Path, error: TidemarkError) -> Finding:
    return failed(f"pipelines: {file.name}", error.what, error.next_step)


def _checks(environment: Environment, pipelines: list[Pipeline], master: str, with_airflow: bool) -> Iterator[Check]:
    """Made one by one, so that Airflow and Spark are imported when their turn comes."""
    lookup: Lookup = from_environment
    yield from machine.checks(environment)
    yield from database.checks(environment)
    if with_airflow:
        from tidemark.airflow import doctor as airflow

        yield from airflow.checks(pipelines)
        lookup = airflow.stored
    for pipeline in pipelines:
        yield from source.checks(pipeline, lookup)
        yield from targets.checks(environment, pipeline, lookup)
    from tidemark.spark import doctor as spark  # takes 1 s to import

    yield from spark.checks(environment, master, pipelines, _brokers(pipelines, lookup))


def _brokers(pipelines: list[Pipeline], lookup: Lookup) -> list[str]:
    """The addresses executors must reach; what is wrong with a connection is said by the checks of the source."""
    found: set[str] = set()
    for pipeline in pipelines:
        try:
            found |= set(open_source(pipeline.name, pipeline.source, lookup).endpoints())
        except TidemarkError:
            continue
    return sorted(found)


def _announce(check: Check) -> None:
    if check.timeout > TIMEOUT_S:
        output.note(f"{check.name} .. (up to {check.timeout:.0f} s)")


def _show(one: Finding, as_json: bool) -> None:
    if as_json:
        return
    click.echo(f"{click.style(f'{one.severity:8}', fg=STYLES[one.severity])} {one.check}: {one.said}")
    if one.next_step:
        click.echo(f"         next: {one.next_step}")
