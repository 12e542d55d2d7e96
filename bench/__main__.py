"""`python -m bench [--quick] [--messages N] [--runs N] [--only PART]`: measures and prints the tables.

Exit status 0 when all jobs ran, whatever the figures are. The figures are written to `.tidemark/bench.json`, and with
`--write` to `bench/README.md`.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from bench import commits, decoding, pages, planning, report, sinks
from bench.records import ALLOWED_LATENESS_S, PARTITIONS, SCHEMA, messages
from bench.timed import Timing, timed
from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres, remove_home
from tidemark.database.migrate import migrate
from tidemark.errors import TidemarkError

MESSAGES, QUICK_MESSAGES, SMALL_MESSAGES = 4_000_000, 200_000, 1_000
DECODED_SHARE = 20  # decoders get one record of as many
SINK_MESSAGES = 1_000_000  # of one manifest
PARTS = ("decoders", "jobs", "small", "sinks", "plan", "iceberg", "page")
RESULTS = STATE / "bench.json"


class Bench:
    """The services and the folder of one measurement."""

    def __init__(self, folder: Path, broker: Broker, postgres: Postgres) -> None:
        self.folder = folder
        self.broker = broker
        self.postgres = postgres
        self.jars = STATE / "jars" / "spark"

    def fill(self, topic: str, count: int) -> None:
        """Create a topic and send ``count`` messages to it."""
        self.broker.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        producer = self.broker.producer(
            enable_idempotence=True, compression_type="lz4", linger_ms=50, queue_buffering_max_messages=1_000_000
        )
        for number, message in enumerate(messages(count)):
            producer.produce(topic, message.value, message.key, message.partition, timestamp=message.stamp_ms)
            if number % 10_000 == 0:
                producer.poll(0)
                while len(producer) > 500_000:
                    producer.poll(0.1)
        assert producer.flush(120) == 0

    def once(self, kind: str, topic: str, expected: int) -> Timing:
        """Run one contender with an empty lake (and for Tidemark an empty database); remove its output afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.folder))
        task = {
            "master": "local[*]",
            "jars": ",".join(str(jar) for jar in sorted(self.jars.glob("*.jar"))),
            "bootstrap_servers": self.broker.bootstrap_servers,
            "topic": topic,
            "output": str(folder / "lake"),
        }
        try:
            with self.postgres.temporary_database("bench") as dsn:
                migrate(dsn)
                environment = self._environment(folder, topic, dsn)
                return timed(kind, task, folder, environment, None if kind == "noop" else expected)
        finally:
            shutil.rmtree(folder)

    def _environment(self, folder: Path, topic: str, dsn: str) -> dict[str, str]:
        pipelines = folder / "pipelines"
        pipelines.mkdir()
        (pipelines / "bench.yaml").write_text(yaml.safe_dump(self._pipeline(folder / "lake", topic)))
        return {
            **os.environ,
            "TIDEMARK_DB": dsn,
            "TIDEMARK_HOME": str(folder),
            "TIDEMARK_PIPELINES": str(pipelines),
            "TIDEMARK_SPARK_JARS": str(self.jars),
        }

    def _pipeline(self, lake: Path, topic: str) -> dict[str, Any]:
        return {
            "pipeline": "bench",
            "source": {"kafka": {"bootstrap_servers": self.broker.bootstrap_servers, "topics": [topic]}},
            "decode": {"format": "json", "schema": SCHEMA},
            "event_time": {"field": "at", "allowed_lateness": f"{ALLOWED_LATENESS_S}s"},
            "on_error": "dead_letter",
            "sinks": [{"files": {"root": str(lake), "layout": "raw/{stream}/%Y-%m-%d/%H", "compression": "zstd"}}],
        }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every part that was asked for, as values for JSON. Prints each run to standard error when it ends."""
    figures: dict[str, Any] = {"machine": report.machine(), "messages": arguments.messages, "runs": arguments.runs}
    if "decoders" in arguments.only:
        figures["decoders"] = decoding.measure(arguments.messages // DECODED_SHARE, arguments.runs)
    if arguments.only == ["decoders"]:
        return figures  # it needs no service
    with _bench() as bench:
        if "jobs" in arguments.only:
            bench.fill("events", arguments.messages)
            kinds = ("tidemark", "batch", "streaming", "noop")
            figures["jobs"] = _alternating(bench, kinds, "events", arguments.messages, arguments.runs)
        if "small" in arguments.only:
            bench.fill("few", SMALL_MESSAGES)
            figures["small"] = _alternating(bench, ("tidemark", "batch"), "few", SMALL_MESSAGES, arguments.runs)
        if "sinks" in arguments.only:
            count = min(arguments.messages, SINK_MESSAGES)
            runs = (sinks.measure(bench.broker, bench.postgres, bench.folder, count) for _ in range(arguments.runs))
            figures["sinks"] = [each for run in runs for each in run]
        if "plan" in arguments.only:
            figures["plan"] = [planning.measure(bench.postgres, *shape) for shape in planning.SHAPES]
        if "iceberg" in arguments.only:
            figures["iceberg"] = [commits.measure(bench.postgres, snapshots) for snapshots in commits.SNAPSHOTS]
        if "page" in arguments.only:
            figures["page"] = pages.measure(bench.postgres)
    return figures


def _alternating(
    bench: Bench, kinds: tuple[str, ...], topic: str, expected: int, runs: int
) -> dict[str, list[dict[str, Any]]]:
    """Each kind once, then each again: other load on the machine slows all of them down alike."""
    timings: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(runs):
        for kind in kinds:
            timing = bench.once(kind, topic, expected)
            timings[kind].append(timing.as_dict())
            print(f"{topic} {number + 1}/{runs} {report.line(kind, timing)}", file=sys.stderr, flush=True)
    return timings


@contextmanager
def _bench() -> Iterator[Bench]:
    STATE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=STATE))
    try:
        # fsync as in production, because publishing waits for it.
        with Postgres(folder, durable=True) as postgres, Broker(folder, STATE / "jars" / "kafka") as broker:
            yield Bench(folder, broker, postgres)
    finally:
        remove_home(folder)
        shutil.rmtree(folder, ignore_errors=True)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="make bench", description="Measures Tidemark beside plain Spark jobs.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MESSAGES:,} messages, each job once")
    parser.add_argument("--messages", type=int, default=None, help=f"number of messages (default {MESSAGES:,})")
    parser.add_argument("--runs", type=int, default=None, help="how often each job runs (default 3)")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part; may be repeated")
    parser.add_argument("--write", action="store_true", help="write the tables to bench/README.md")
    arguments = parser.parse_args(words)
    arguments.messages = arguments.messages or (QUICK_MESSAGES if arguments.quick else MESSAGES)
    arguments.runs = arguments.runs or (1 if arguments.quick else 3)
    arguments.only = arguments.only or list(PARTS)
    figures = measure(arguments)
    RESULTS.write_text(json.dumps(figures, indent=1))
    text = report.tables(figures)
    print(text)
    if arguments.write:
        report.write_into(CHECKOUT / "bench" / "README.md", text)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)  # by default SIGTERM leaves services and contenders running
    try:
        main(sys.argv[1:])
    except TidemarkError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
