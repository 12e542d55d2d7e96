"""The command line without Spark: ``arrow_stage`` stages the orders."""

from tests.worlds.arrow_stage import arrow_stage
from tidemark.cli import main
from tidemark.environment import Environment
from tidemark.lifecycle.attempt import Stage
from tidemark.lifecycle.context import Context
from tidemark.spark import engines


def without_spark(context: Context, environment: Environment, master: str | None, tell: object = None) -> Stage:
    return arrow_stage


if __name__ == "__main__":
    engines.stage_in = without_spark
    main.main()
