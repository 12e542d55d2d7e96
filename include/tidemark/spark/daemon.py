"""Spark's daemon of Python workers, which imports the work of a task before it forks them: it is imported once a job.

Spark starts it with ``python -m`` and the name of the worker's module; nothing may be printed on the way.
"""

from pyspark import daemon

import tidemark.processing.processor  # noqa: F401

if __name__ == "__main__":
    daemon.manager()  # type: ignore[no-untyped-call]
