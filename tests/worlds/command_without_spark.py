"""The command line without Spark: ``arrow_stage`` stages the orders."""

from collections.abc import Mapping

from tests.worlds.arrow_stage import arrow_stage
from tidemark.cli import main
from tidemark.environment import Environment
from tidemark.lifecycle.attempt import Stage


def without_spark(environment: Environment, master: str, conf: Mapping[str, str]) -> Stage:
    return arrow_stage


if __name__ == "__main__":
    main.in_this_process = without_spark
    main.main()
