"""`python -m bench [--quick] [--messages N] [--runs N] [--only PART]`: measures and prints the tables.

Flink's jars are fetched only if Flink is to be measured. Exit status 0 if all jobs ran, whatever the figures are. The
figures are written to `.tidemark/bench.json`, and with `--write` to `bench/README.md`.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from bench import (
    commits,
    current_rows,
    decoding,
    files,
    fleet,
    flink,
    group,
    ledger,
    pages,
    planning,
    report,
    sinks,
    streams,
    wide,
)
from bench.records import ALLOWED_LATENESS_S, HOURS, PARTITIONS, SCHEMA, SMALL_MESSAGES, messages
from bench.timed import Timing, timed
from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres, remove_home
from sandbox.services.spark_server import SparkServer
from tidemark.database.migrate import migrate
from tidemark.errors import TidemarkError
from tidemark.spark.jars import fitting_jars

MESSAGES, QUICK_MESSAGES = 4_000_000, 200_000
DECODED_SHARE = 40  # decoders get one of so many records
SINK_MESSAGES = 1_000_000  # in one manifest
PARTS = ("decoders", "jobs", "small", "sinks", "streams", "plan", "iceberg", "page", "ledger")
LONG_PARTS = ("rows", "wide", "files", "group", "fleet")  # measured only if they are named
NO_SETTINGS: Mapping[str, Any] = {}
# The contenders in the order of their turns; report.NAMES describes them.
LARGE = ("tidemark", "warm", "flink", "batch", "streaming", "noop")
SMALL = ("tidemark", "warm", "flink", "batch")
RESULTS = STATE / "bench.json"


class Bench:
    """The services and the folder of one measurement."""

    def __init__(self, folder: Path, broker: Broker, postgres: Postgres, beside: Path | None = None) -> None:
        """``beside`` is another checkout of Tidemark, set up by ``make setup``: the contender of this name."""
        self.folder = folder
        self.broker = broker
        self.postgres = postgres
        self.beside = beside
        self.jars = STATE / "jars" / "spark"
        self._numbers = count(1)
        self._flink: list[str] | None = None
        self._server: SparkServer | None = None
        self._server_dsn: str | None = None

    def fill(self, topic: str, number_of_messages: int, partitions: int = PARTITIONS) -> None:
        """Create a topic and send messages to it."""
        self.broker.create_topic(topic, partitions, {"retention.ms": "-1"})
        producer = self.broker.producer(
            enable_idempotence=True, compression_type="lz4", linger_ms=50, queue_buffering_max_messages=1_000_000
        )
        for number, message in enumerate(messages(number_of_messages)):
            producer.produce(topic, message.value, message.key, number % partitions, timestamp=message.stamp_ms)
            if number % 10_000 == 0:
                producer.poll(0)
                while len(producer) > 500_000:
                    producer.poll(0.1)
        assert producer.flush(120) == 0

    def once(
        self,
        kind: str,
        topic: str,
        expected: int,
        *,
        master: str = "local[*]",
        settings: Mapping[str, Any] = NO_SETTINGS,
    ) -> Timing:
        """Run one contender with an empty lake and a new pipeline; remove its output afterwards.

        The contender ``warm`` needs ``server``. Every other one gets an empty database. ``settings`` are those for
        ``slice``, ``spark``, ``source``, ``decode``, ``event_time`` and ``layout`` in the pipeline file, and
        ``folders``, the number of folders that its lake then has.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.folder))
        jars = self._jars(kind)
        task = {
            "pipeline": f"bench-{next(self._numbers)}",
            "master": master,
            "jars": ",".join(str(jar) for jar in sorted(fitting_jars(jars).glob("*.jar"))),
            "bootstrap_servers": self.broker.bootstrap_servers,
            "topic": topic,
            "output": str(folder / "lake"),
        }
        try:
            with self._database(kind) as dsn:
                environment = self._environment(folder, task, dsn, jars, settings)
                server = None
                if kind == "warm":
                    assert self._server is not None
                    server = self._server.pid
                    environment["TIDEMARK_SPARK_REMOTE"] = self._server.remote
                rows = None if kind == "noop" else expected
                folders = settings.get("folders", HOURS)
                return timed(kind, self._command(kind), task, folder, environment, rows, server, folders)
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def server(self, topic: str, expected: int) -> Iterator[None]:
        """Start a Spark Connect server for ``warm``, with the database of all its runs, and do one run of the topic.

        Attempts of one database share a session on the server, and its Python workers that have started.
        """
        environment = {"TIDEMARK_SPARK_JARS": str(self.jars)}
        with self._database("server") as dsn, SparkServer(self.folder, environment) as server:
            self._server, self._server_dsn = server, dsn
            self.once("warm", topic, expected)
            yield

    @contextmanager
    def _database(self, kind: str) -> Iterator[str]:
        if kind == "warm":
            assert self._server_dsn is not None
            yield self._server_dsn
        else:
            with self.postgres.temporary_database("bench") as dsn:
                if kind == "beside":
                    words = [self._program_beside("tidemark"), "db", "migrate"]
                    subprocess.run(words, env={**os.environ, "TIDEMARK_DB": dsn}, check=True, stdout=subprocess.DEVNULL)
                else:
                    migrate(dsn)
                yield dsn

    def _program_beside(self, name: str) -> str:
        return str(self._beside(".venv", "bin", name))

    def _beside(self, *parts: str) -> Path:
        assert self.beside is not None
        return self.beside.joinpath(*parts)

    def _jars(self, kind: str) -> Path:
        return self._beside(".tidemark", "jars", "spark") if kind == "beside" else self.jars

    def _command(self, kind: str) -> list[str]:
        if kind == "beside":  # from the folder of its checkout, so that it uses its own `bench`
            python = self._program_beside("python")
            return ["env", f"--chdir={self.beside}", python, "-m", "bench.contender", "tidemark"]
        if kind != "flink":
            return [sys.executable, "-m", "bench.contender", kind]
        if self._flink is None:
            self._flink = flink.command(STATE, self.folder)
        return self._flink

    def _environment(
        self, folder: Path, task: dict[str, str], dsn: str, jars: Path, settings: Mapping[str, Any]
    ) -> dict[str, str]:
        pipelines = folder / "pipelines"
        pipelines.mkdir()
        (pipelines / f"{task['pipeline']}.yaml").write_text(yaml.safe_dump(self._pipeline(task, settings)))
        return {
            **os.environ,
            "TIDEMARK_DB": dsn,
            "TIDEMARK_HOME": str(folder),
            "TIDEMARK_PIPELINES": str(pipelines),
            "TIDEMARK_SPARK_JARS": str(jars),
        }

    def _pipeline(self, task: dict[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
        kafka = {"bootstrap_servers": task["bootstrap_servers"], "topics": [task["topic"]]}
        return {
            "pipeline": task["pipeline"],
            "source": settings.get("source", {"kafka": {**kafka, "slice": settings.get("slice", {})}}),
            "spark": settings.get("spark", {}),
            "decode": settings.get("decode", {"format": "json", "schema": SCHEMA}),
            "event_time": settings.get("event_time", {"field": "at", "allowed_lateness": f"{ALLOWED_LATENESS_S}s"}),
            "on_error": "dead_letter",
            "sinks": [
                {
                    "files": {
                        "root": task["output"],
                        "layout": settings.get("layout", "raw/{stream}/%Y-%m-%d/%H"),
                        "compression": "zstd",
                    }
                }
            ],
        }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return every requested part, as values for JSON. Print each run to standard error when it ends."""
    figures: dict[str, Any] = {"machine": report.machine(), "messages": arguments.messages, "runs": arguments.runs}
    if "decoders" in arguments.only:
        figures["decoders"] = decoding.measure(arguments.messages // DECODED_SHARE, arguments.runs)
    if arguments.only == ["decoders"]:
        return figures  # it needs no service
    with _bench(arguments.beside) as bench:
        if {"jobs", "small"} & {*arguments.only}:
            figures |= _beside_each_other(bench, arguments)
        if "sinks" in arguments.only:
            number = min(arguments.messages, SINK_MESSAGES)
            runs = (sinks.measure(bench.broker, bench.postgres, bench.folder, number) for _ in range(arguments.runs))
            figures["sinks"] = [each for run in runs for each in run]
        if "streams" in arguments.only:
            figures["streams"] = streams.measure(bench, min(arguments.messages, streams.MESSAGES), arguments.runs)
        if "plan" in arguments.only:
            figures["plan"] = [planning.measure(bench.postgres, *shape) for shape in planning.SHAPES]
        if "iceberg" in arguments.only:
            figures["iceberg"] = [commits.measure(bench.postgres, snapshots) for snapshots in commits.SNAPSHOTS]
        if "page" in arguments.only:
            figures["page"] = pages.measure(bench.postgres)
        if "ledger" in arguments.only:
            figures["ledger"] = ledger.measure(bench.postgres)
        figures |= _long_parts(bench, arguments)
    return figures


def _long_parts(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if "rows" in arguments.only:
        rows = current_rows.QUICK_ROWS if arguments.quick else current_rows.ROWS
        changed = current_rows.CHANGED
        figures["rows"] = current_rows.measure(bench.postgres, bench.folder, rows, changed, arguments.runs)
    if "wide" in arguments.only:
        figures["wide"] = wide.measure(bench, arguments.runs)
    if "files" in arguments.only:
        figures["files"] = files.measure(bench, arguments.runs)
    if "group" in arguments.only:
        figures["group"] = group.measure(bench.postgres, bench.broker, bench.fill, bench.folder, arguments.topics)
    if "fleet" in arguments.only:
        figures["fleet"] = fleet.measure(
            bench.postgres, bench.broker, bench.folder, arguments.pipelines, arguments.runs
        )
    return figures


def _beside_each_other(bench: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every requested contender with the large topic and with the small one."""
    left_out = {kind: reason for kind, reason in {"flink": flink.missing()}.items() if reason}
    figures: dict[str, Any] = {"left_out": left_out}
    also = ("beside",) if bench.beside else ()
    bench.fill("few", SMALL_MESSAGES)
    with bench.server("few", SMALL_MESSAGES):
        if "jobs" in arguments.only:
            bench.fill("events", arguments.messages)
            kinds = (*(kind for kind in LARGE if kind not in left_out), *also)
            figures["jobs"] = _alternating(bench, kinds, "events", arguments.messages, arguments.runs)
        if "small" in arguments.only:
            kinds = (*(kind for kind in SMALL if kind not in left_out), *also)
            figures["small"] = _alternating(bench, kinds, "few", SMALL_MESSAGES, arguments.runs)
    return figures


def _alternating(
    bench: Bench, kinds: tuple[str, ...], topic: str, expected: int, runs: int
) -> dict[str, list[dict[str, Any]]]:
    """Measure each kind once, then each again, so that other load on the machine slows all of them down alike."""
    timings: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(runs):
        for kind in kinds:
            timing = bench.once(kind, topic, expected)
            timings[kind].append(timing.as_dict())
            print(f"{topic} {number + 1}/{runs} {report.line(kind, timing)}", file=sys.stderr, flush=True)
    return timings


@contextmanager
def _bench(beside: Path | None) -> Iterator[Bench]:
    STATE.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=STATE))
    try:
        # fsync as in production, because publishing waits for it.
        with Postgres(folder, durable=True) as postgres, Broker(folder, STATE / "jars" / "kafka") as broker:
            yield Bench(folder, broker, postgres, beside)
    finally:
        remove_home(folder)
        shutil.rmtree(folder, ignore_errors=True)


def main(words: list[str]) -> None:
    what = "Measures Tidemark beside Flink and plain Spark jobs."
    parser = argparse.ArgumentParser(prog="make bench", description=what)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MESSAGES:,} messages, each job once")
    parser.add_argument("--messages", type=int, default=None, help=f"number of messages (default {MESSAGES:,})")
    parser.add_argument("--runs", type=int, default=None, help="how often each job runs (default 3)")
    parser.add_argument(
        "--only", choices=(*PARTS, *LONG_PARTS), action="append", help="measure only this part; may be repeated"
    )
    parser.add_argument("--fleet", action="store_const", const=["fleet"], dest="only", help="the same as --only fleet")
    parser.add_argument(
        "--pipelines", type=int, default=fleet.PIPELINES, help=f"how many a fleet has (default {fleet.PIPELINES})"
    )
    parser.add_argument(
        "--topics", type=int, default=group.MEMBERS, help=f"how many a group has (default {group.MEMBERS})"
    )
    parser.add_argument(
        "--beside", type=_checkout, help="another checkout, set up by `make setup`, in turn with this one (jobs, files)"
    )
    parser.add_argument("--write", action="store_true", help="write the tables to bench/README.md")
    arguments = parser.parse_args(words)
    arguments.messages = arguments.messages or (QUICK_MESSAGES if arguments.quick else MESSAGES)
    arguments.runs = arguments.runs or (1 if arguments.quick else 3)
    arguments.only = arguments.only or list(PARTS)
    figures = measure(arguments)
    RESULTS.write_text(json.dumps(figures, indent=1))
    parts = report.sections(figures)
    print("\n\n".join(parts.values()))
    if arguments.write:
        report.write_into(CHECKOUT / "bench" / "README.md", parts)


def _checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / ".venv" / "bin" / "python").exists():
        raise argparse.ArgumentTypeError(f"{path} is no checkout that `make setup` has set up")
    return path


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
