"""The command line without Spark: ``arrow_stage`` stages the orders."""

from collections.abc import Mapping

from tests.worlds.arrow_stage import arrow_stage
from tidemark.cli import main
from tidemark.environment import Environment
from tidemark.lifecycle.attempt import Stage
from tidemark.spark import in_process


def without_spark(environment: Environment, master: str, conf: Mapping[str, str], tell: object = None) -> Stage:
    return arrow_stage


if __name__ == "__main__":
    in_process.stage_in = without_spark
    main.main()
