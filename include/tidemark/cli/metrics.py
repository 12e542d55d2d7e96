"""The command for monitoring: the state of pipelines as numbers."""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import click

from tidemark.api import answers_of_sources, known_pipelines
from tidemark.cli import log
from tidemark.cli.opened import connections_of_sources, database_of
from tidemark.cli.options import Commands, common_options, pipeline_argument
from tidemark.cli.output import print_json
from tidemark.cli.terminal import echo
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, TidemarkError
from tidemark.operations.lags import Answer
from tidemark.operations.status import status
from tidemark.pipeline.deployed import Deployed
from tidemark.views.open_metrics import CONTENT_TYPE, Measured, measured, text
from tidemark.views.pipelines import pipeline_view

commands = Commands()
LOOPBACK = "127.0.0.1"
NOT_ASKED = Answer(None, "the source was not asked")


def _address(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    del context
    host, _, port = value.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 <= int(port) < 2**16:
        raise click.BadParameter(f"{value!r} has no port; write 9108 or 0.0.0.0:9108", param=option)
    return host.strip("[]") or LOOPBACK, int(port)


@commands.command("monitor metrics")
@pipeline_argument(required=False)
@click.option("--lag/--no-lag", default=True, show_default=True, help="Ask how far each partition is behind.")
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    callback=_address,
    help="Serve gauges at http://HOST:PORT/metrics until Ctrl-C, measured at each request. HOST is 127.0.0.1 if not "
    "set; on another address, everybody can read them.",
)
@common_options
@click.pass_obj
def metrics(
    environment: Environment, pipeline_name: str | None, lag: bool, listen: tuple[str, int] | None, as_json: bool
) -> None:
    """Print gauges for monitoring, as OpenMetrics text.

    Lag, manifests by state, records, late and stale rows, dead letters, unknown fields, lost offsets. Without PIPELINE:
    all of the database and the folder.
    """

    def pipelines() -> list[Measured]:
        with database_of(environment) as database:
            known = known_pipelines(environment, database, pipeline_name)
            heard = dict.fromkeys(known, NOT_ASKED)
            if lag:
                heard |= answers_of_sources(database, known, lambda named: connections_of_sources(*named))
            with database.reading_ahead(known):
                return [_measured(database, name, deployed, heard[name]) for name, deployed in known.items()]

    if listen is not None:
        if as_json:
            raise click.UsageError("--listen serves OpenMetrics text; leave out --json")
        _serve(listen, lambda: text(pipelines()))
    elif as_json:
        print_json(pipelines())
    else:
        echo(text(pipelines()), nl=False)


def _serve(address: tuple[str, int], measure: Callable[[], str]) -> None:
    """Answer one request after the other until Ctrl-C. An error gives status 503 with its text; the next request
    measures again.
    """

    class MetricsHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if urlsplit(self.path).path != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND, "the only page is /metrics")
                return
            try:
                status, kind, body = HTTPStatus.OK, CONTENT_TYPE, measure()
            except TidemarkError as error:
                status, kind, body = HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{error}\n"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing: a line for each request would hide what matters."""

    try:
        server = HTTPServer(address, MetricsHandler)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}",
            next_step="choose another port or address of this machine",
        ) from None
    with server, suppress(KeyboardInterrupt):
        log.note(f"http://{address[0]}:{server.server_port}/metrics")
        server.serve_forever()


def _measured(
    database: ManifestDatabase, name: str, deployed: Deployed | TidemarkError | None, heard: Answer
) -> Measured:
    if heard.why and heard is not NOT_ASKED:
        log.note(f"the lag of {name} is not known: {heard.why}")
    known = status(database, name, deployed, heard=None if heard is NOT_ASKED else heard)
    return measured(database, pipeline_view(database, known, heard), heard.parts)
