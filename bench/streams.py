"""Measures `tidemark run` over streams of RabbitMQ and over a topic of Kafka with the same records."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bench.records import HOURS, PARTITIONS, messages
from bench.timed import Timing
from sandbox.services.rabbitmq import RabbitMQ
from tidemark.connections.lookup import variable_of
from tidemark.environment import set_variables

MESSAGES = 2_000_000
CONN_ID = "bench_rabbitmq"
AT_ONCE = 10_000  # messages in memory while streams are filled


class Runs(Protocol):
    """The methods of ``bench.__main__.Bench`` that this part uses."""

    folder: Path

    def fill(self, topic: str, number_of_messages: int) -> None: ...

    def once(self, kind: str, topic: str, expected: int, *, settings: Mapping[str, Any] = ...) -> Timing: ...


def measure(bench: Runs, count: int, runs: int) -> dict[str, Any]:
    """Return the timings of each run by source; the two take turns. Each partition of the topic corresponds to a
    stream.
    """
    topic, streams = f"beside-{count}", [f"events-{number}" for number in range(PARTITIONS)]
    bench.fill(topic, count)
    with RabbitMQ(bench.folder) as server:
        _fill(server, streams, count)
        login = {"host": "127.0.0.1", "port": server.port, "login": server.user, "password": server.password}
        source = {"rabbitmq": {"connection": CONN_ID, "streams": streams}}
        settings = {"source": source, "folders": HOURS * PARTITIONS}
        timings: dict[str, list[dict[str, Any]]] = {"kafka": [], "rabbitmq": []}
        with set_variables({variable_of(CONN_ID): json.dumps({"conn_type": "rabbitmq", **login})}):
            for number in range(runs):
                turn = {"kafka": bench.once("tidemark", topic, count)}
                turn["rabbitmq"] = bench.once("tidemark", "streams", count, settings=settings)
                for kind, timing in turn.items():
                    timings[kind].append(timing.as_dict())
                    print(f"{kind} {number + 1}/{runs} job {timing.job:.1f} s, processor {timing.cpu:.1f} s",
                          file=sys.stderr, flush=True)  # fmt: skip
    return {"messages": count, "timings": timings}


def _fill(server: RabbitMQ, streams: list[str], count: int) -> None:
    waiting: dict[str, list[bytes]] = {stream: [] for stream in streams}
    for stream in streams:
        server.streams().create_stream(stream)
    for message in messages(count):
        stream = streams[message.partition]
        waiting[stream].append(message.value)
        if len(waiting[stream]) == AT_ONCE:
            server.streams().publish(stream, waiting[stream])
            waiting[stream] = []
    for stream, values in waiting.items():
        server.streams().publish(stream, values)
