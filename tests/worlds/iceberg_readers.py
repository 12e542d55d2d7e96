"""Reads an Iceberg table with an engine that has no code of PyIceberg: DuckDB, in a process of its own."""

import fcntl
import json
import subprocess
import sys

from sandbox.bootstrap.checkout import CHECKOUT, STATE
from tests.worlds.world import Place

SCRIPT = """
import duckdb, json, pathlib, sys
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for extension in ("avro", "iceberg"):
    folder = pathlib.Path(sys.argv[1], f"duckdb_extension_{extension}", "extensions")
    [file] = folder.glob("*/*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
rows = connection.execute(f"SELECT _topic, _partition, _offset FROM iceberg_scan('{sys.argv[2]}')").fetchall()
print(json.dumps(rows))
"""


def read_by_duckdb(metadata: str) -> list[Place]:
    """The places of all rows of the table with this metadata file."""
    folder = STATE / "readers"
    with (STATE / "readers.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_suffix(".part")
            command = [
                str(STATE / "tools" / "bin" / "uv"), "--quiet", "pip", "install", "--require-hashes", "--python",
                sys.executable, "--target", str(part), "-r", str(CHECKOUT / "requirements" / "readers.lock"),
            ]  # fmt: skip
            subprocess.run(command, check=True)
            part.rename(folder)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), metadata.removeprefix("file://")],
        env={"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(topic, partition, offset) for topic, partition, offset in json.loads(done.stdout)]
