"""The command for monitoring: the state of pipelines as numbers."""

import json
from dataclasses import asdict

import click

from tidemark.api import check_pipeline
from tidemark.cli import output
from tidemark.cli.opened import connections_of, database_of
from tidemark.cli.options import common_options, pipeline_argument
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import open_context
from tidemark.open_metrics import Measured, measured, text
from tidemark.operations.lag import lag as measure_lag
from tidemark.operations.status import status
from tidemark.pipeline.loader import find
from tidemark.views import LagView, as_json_text, lag_views, pipeline_view

commands = click.Group()


@commands.command()
@pipeline_argument(required=False)
@click.option("--lag/--no-lag", default=True, show_default=True, help="Ask Kafka how far each partition is behind.")
@common_options
@click.pass_obj
def metrics(environment: Environment, pipeline_name: str | None, lag: bool, as_json: bool) -> None:
    """Print gauges for monitoring, as OpenMetrics text.

    Lag, manifests by state, records, late rows, dead letters, lost offsets. Without PIPELINE: all that were planned.
    """
    with database_of(environment) as database:
        if pipeline_name is not None:
            check_pipeline(environment, database, pipeline_name)
        names = [name for name in database.pipelines() if pipeline_name in (None, name)]
        pipelines = [_measured(environment, database, name, asks=lag) for name in names]
    if as_json:
        click.echo(json.dumps([asdict(pipeline) for pipeline in pipelines], indent=2, default=as_json_text))
    else:
        click.echo(text(pipelines), nl=False)


def _measured(environment: Environment, database: ManifestDatabase, name: str, *, asks: bool) -> Measured:
    parts: list[LagView] | None = None
    why = "Kafka was not asked"
    try:
        parts = _lag(environment, database, name) if asks else None
    except TidemarkError as error:
        why = error.what
        output.note(f"the lag of {name} is not known: {why}")
    return measured(database, pipeline_view(database, status(database, name, None), parts, why), parts)


def _lag(environment: Environment, database: ManifestDatabase, name: str) -> list[LagView]:
    pipeline = find(environment.pipelines, name)
    with connections_of(pipeline):
        return lag_views(measure_lag(open_context(pipeline, database)))
