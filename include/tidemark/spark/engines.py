"""What Spark does the work of ``run``, ``retry`` and ``replay``: a session of this process, or a server that stays up.

Airflow submits a job instead of the session; which of the two it is, ``engine_of`` says for both.
"""

from collections.abc import Callable
from contextlib import nullcontext

from tidemark.environment import Environment
from tidemark.lifecycle.attempt import Stage
from tidemark.lifecycle.context import Context
from tidemark.order import Order
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.receipt import Receipt
from tidemark.spark.remote import remote_of

Tell = Callable[[str], object]


def engine_of(pipeline: Pipeline, environment: Environment) -> Engine:
    """The engine of the pipeline file; without one a server does the work where the environment names it."""
    return pipeline.spark.engine or (Engine.CONNECT if environment.spark_remote else Engine.SUBMIT)


def stage_in(context: Context, environment: Environment, master: str | None, tell: Tell | None = None) -> Stage:
    """Stages on a Spark Connect server, or in a session of this process that opens when the first order comes.

    ``master``: where such a session works; when it is not None, the session does the work in any case. ``tell``: gets a
    line about a job each 30 seconds.

    Raises ``ConfigurationError`` when a server is to do the work and none is named.
    """
    if master is None and engine_of(context.pipeline, environment) is Engine.CONNECT:
        return on_server(context, environment, tell)
    return _in_session(context, environment, master or environment.spark_master, tell)


def on_server(context: Context, environment: Environment, tell: Tell | None) -> Stage:
    """Stages on the server that the environment names, or the connection ``spark_connect``."""
    remote = remote_of(environment, context.lookup)

    def stage(order: Order) -> Receipt:
        from tidemark.spark.connected import stage_on  # takes 0.5 s to import

        entries = {conn_id: context.lookup(conn_id) for conn_id in context.pipeline.connections()}
        return stage_on(
            remote,
            order,
            database_id=context.database.id(),
            home=environment.home,
            conf=context.pipeline.spark.conf,
            connections={conn_id: entry for conn_id, entry in entries.items() if entry is not None},
            tell=tell,
        )

    return stage


def _in_session(context: Context, environment: Environment, master: str, tell: Tell | None) -> Stage:
    def stage(order: Order) -> Receipt:
        from tidemark.spark.job import stage as stage_order  # Spark takes 1 s to import and 8 s to start
        from tidemark.spark.progress import told
        from tidemark.spark.session import open_session

        log = environment.home / "_logs" / "spark.log"
        conf = context.pipeline.spark.conf
        session = open_session(
            master, environment.spark_jars, log, home=environment.home, conf=conf, records=order.span
        )
        with told(session, tell) if tell else nullcontext():
            return stage_order(session, order, log)

    return stage
