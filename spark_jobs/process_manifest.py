"""Does one order when you call spark-submit by hand; Airflow submits tidemark/spark/application.py."""

import sys

from tidemark.spark.submitted import main

sys.exit(main(sys.argv[1:]))
