"""The command line without Spark: ``arrow_stage`` stages the orders."""

from tests.worlds.arrow_stage import without_spark
from tidemark.cli import main
from tidemark.spark import engines

if __name__ == "__main__":
    engines.stage_in = without_spark
    main.main()
