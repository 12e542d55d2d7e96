"""The process that Python workers of a Spark Connect server are forked from: what a task needs is imported once.

Without it the first task of each worker takes half a second longer. Of our own package nothing stays imported: a client
with another version sends its package, and workers must find that one.
"""

import importlib
import sys

from pyspark import daemon

for name in ("pandas", "pyarrow.parquet", "pyarrow.compute", "pyspark.sql.pandas.serializers", "pyspark.worker"):
    importlib.import_module(name)

if __name__ == "__main__":
    for name in [name for name in sys.modules if name.partition(".")[0] == "tidemark"]:
        del sys.modules[name]
    daemon.manager()  # type: ignore[no-untyped-call]
