"""A session of Spark that stays up, for `bench.current_rows`: it reads a line of JSON, and writes a line when it is
done.

The first line has the settings. Each further line has a ``statement``, and ``staged``, the folder for its view of that
name, or null. The answer has the statement's rows.
"""

import json
import sys


def main() -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").appName("bench")
    for name, value in json.loads(sys.stdin.readline()).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    print("[]", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        if task["staged"]:
            session.read.parquet(task["staged"]).createOrReplaceTempView("staged")
        rows = [list(row) for row in session.sql(task["statement"]).collect()]
        print(json.dumps(rows, default=str), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
