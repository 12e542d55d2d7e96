"""Does one order, for whoever calls spark-submit by hand; Airflow is given tidemark/spark/application.py."""

import sys

from tidemark.spark.submitted import main

sys.exit(main(sys.argv[1:]))
