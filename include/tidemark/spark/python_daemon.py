"""The process from which Python workers of a Spark Connect server are forked. It imports once what tasks need.

Without it, the first task of each worker takes half a second longer. Modules of our own package do not stay imported: a
client with another version sends its package, and workers must find that one.
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
