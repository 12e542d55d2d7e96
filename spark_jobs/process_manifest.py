"""What spark-submit is given: does one order. See tidemark/spark/submitted.py."""

import sys

from tidemark.spark.submitted import main

sys.exit(main(sys.argv[1:]))
