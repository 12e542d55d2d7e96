"""A driver that does its order without Spark, for tests of what waits for it. It works when a file is there.

``python -m tests.worlds.driver_without_spark FILE ADDRESS [CONNECTION]``
"""

import sys
import time
from pathlib import Path

from tests.worlds.arrow_stage import arrow_stage
from tidemark.model.order import Order
from tidemark.spark.orders import ORDER, PROGRESS, RECEIPT, folder_of


def main(file: str, address: str, connection: str | None = None) -> int:
    folder = folder_of(address, connection)
    content = folder.get(ORDER)
    assert content is not None
    folder.put(PROGRESS, b"the driver has begun")
    while not Path(file).exists():
        if folder.get(ORDER) is None:
            return 1
        time.sleep(0.2)
    receipt = arrow_stage(Order.from_json(content.decode()))
    if folder.get(ORDER) is not None:
        folder.put(RECEIPT, receipt.to_json().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
