"""Records that are tiny on the broker and huge when they are read, on a real broker, through the command line."""

import json
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from tests.worlds.world import EPOCH, World

MakeWorld = Callable[..., World]
HUGE = 50_000_000  # bytes of one record; a topic's limit, 1 MiB by default, is of a compressed batch


def value(number: int, name: str) -> bytes:
    return json.dumps({"n": number, "at": EPOCH.isoformat(), "name": name}).encode()


@pytest.mark.thorough
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_bombs_are_rows_or_dead_letters_and_the_records_beside_them_are_unharmed(
    make_world: MakeWorld, codec: str
) -> None:
    world = make_world(partitions=1)
    producer = world.broker.producer(compression_type=codec, message_max_bytes=100_000_000)
    for record in (value(0, "a"), value(1, "x" * HUGE), b"\0" * HUGE, value(3, "b")):
        producer.produce(world.topic, record)
        assert producer.flush(60) == 0  # a batch each
    world.ok("run", "demo")
    [manifest] = world.json("manifests", "demo")
    assert (manifest["counts"]["read"], manifest["counts"]["dead_lettered"]) == (4, 1)
    rows = [row for path in world.data_paths() for row in pq.read_table(path).to_pylist()]
    assert sorted((row["_offset"], len(row["name"])) for row in rows) == [(0, 1), (1, HUGE), (3, 1)]
    [letter] = [row for path in world.data_paths("--dead-letters") for row in pq.read_table(path).to_pylist()]
    assert (letter["_offset"], len(letter["_value"]), letter["_reason"][:8]) == (2, HUGE, "not JSON")
    assert world.ok("audit", "demo", "--deep") == ""
