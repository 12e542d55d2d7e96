"""The command line with orders staged by ``arrow_stage``: all of ``tidemark`` but Spark."""

from collections.abc import Mapping

from tests.worlds.arrow_stage import arrow_stage
from tidemark.cli import main
from tidemark.lifecycle.attempt import Stage
from tidemark.settings import Settings


def without_spark(settings: Settings, master: str, conf: Mapping[str, str]) -> Stage:
    return arrow_stage


if __name__ == "__main__":
    main.in_this_process = without_spark
    main.main()
