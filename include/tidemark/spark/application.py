"""The application for ``spark-submit``, which does one order; see ``submitted.py``."""

import sys

from tidemark.spark.submitted import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
