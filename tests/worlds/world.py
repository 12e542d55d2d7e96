"""The pipeline of one test, with its own topic, manifest database and lake, and what its readers see.

These hold at any time (tests/faults/README.md): the exact reader returns each manifest completely or not at all, and
never a record twice. In the end it returns the same as after a run without faults.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from unittest import mock
from uuid import uuid4

import psycopg
import pyarrow.parquet as pq
import yaml
from click.testing import CliRunner, Result

from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from tests.faults import counts
from tests.worlds.arrow_stage import without_spark
from tests.worlds.dead_sessions import wait_without_the_dead
from tests.worlds.expected_rows import EXPECT, assert_told, is_refused
from tests.worlds.forked_command import ForkedCommand, fork_server
from tests.worlds.new_topics import new_topic
from tests.worlds.used_topics import delete_later
from tidemark.cli import main
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.lifecycle.context import Context, open_context
from tidemark.model.manifest import Manifest
from tidemark.pipeline.loader import find
from tidemark.spark import engines

Command = subprocess.Popen[str] | ForkedCommand
Files = dict[str, tuple[bytes, int]]
Place = tuple[str, int, int]
EPOCH = datetime(2024, 3, 1, tzinfo=UTC)
KEYS = 9  # odd, so that both of two partitions have records of each key
SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING"


def happened(number: int, hours: int = 2) -> datetime:
    """The event time of the record with this number."""
    return EPOCH + timedelta(minutes=number * 7 % (hours * 60))


def empty(dsn: str) -> None:
    """Make a manifest database new: no pipelines, and another identity."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA tidemark CASCADE")
    migrate(dsn)


@dataclass
class World:
    """The pipeline. ``settings`` replace keys of the pipeline file; ``kafka`` in them replaces keys of its source."""

    folder: Path
    dsn: str
    broker: Broker
    spark_jars: Path
    settings: dict[str, Any] = field(default_factory=dict)
    partitions: int = 2
    topic: str = ""
    topic_config: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)  # connection id -> DSN, for sinks that are tables
    name: str = "demo"  # of the pipeline
    produced: int = 0
    hours: int = 2  # of event time that records are spread over
    bad: set[int] = field(default_factory=set)  # the numbers of records that become dead letters
    undecodable: set[int] = field(default_factory=set)  # of these, those that cannot be decoded
    expects: bool = False  # of rows what ``expected_rows`` says
    started: list[Command] = field(default_factory=list)
    opened: list[ManifestDatabase] = field(default_factory=list)
    buried: int = 0  # how many of the started were killed, and have no session any more

    def __post_init__(self) -> None:
        self.pipelines.mkdir(parents=True, exist_ok=True)
        if self.topic:
            self.create_topic()
        else:
            self.topic = new_topic(self.broker, self.partitions, self.topic_config)
        self.write_pipeline()

    def create_topic(self) -> None:
        self.broker.create_topic(self.topic, self.partitions, {"retention.ms": "-1", **self.topic_config})

    @property
    def pipelines(self) -> Path:
        return self.folder / "pipelines"

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def lake_entry(self) -> dict[str, Any]:
        """The entry of ``sinks`` for the lake."""
        return {"files": {"root": str(self.lake), "layout": "raw/{stream}/%Y/%m/%d/%H"}}

    def entry(self) -> dict[str, Any]:
        """The entry of ``sinks`` for what this kind of world looks at; may be asked for once."""
        return self.lake_entry()

    def write_pipeline(self, **kafka: Any) -> None:
        source = {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "topics": [self.topic],
            "slice": {"max_records": 40},
            **self.settings.get("kafka", {}),
            **kafka,
        }
        pipeline = {
            "pipeline": self.name,
            "source": {"kafka": source},
            "decode": {"format": "json", "schema": SCHEMA},
            "event_time": {"field": "at"},
            "on_error": "dead_letter",
            "unfinished": "report",  # a test says itself what finishes a manifest
            "sinks": [self.lake_entry()],
            "expect": list(EXPECT) if self.expects else [],
            **{key: value for key, value in self.settings.items() if key != "kafka"},
        }
        (self.pipelines / f"{self.name}.yaml").write_text(yaml.safe_dump(pipeline))

    def another(self, name: str) -> str:
        """The text of the pipeline file under another name and with other settings, so that it is no renamed file."""
        pipeline = yaml.safe_load((self.pipelines / f"{self.name}.yaml").read_text())
        return yaml.safe_dump({**pipeline, "pipeline": name, "on_error": "fail"})

    def produce(self, count: int, *, bad_every: int = 0, partition: int | None = None) -> None:
        """Send numbered records to the partitions in turn, over event hours; one of ``bad_every`` is no JSON."""
        producer = self.broker.producer()
        for number in range(self.produced, self.produced + count):
            when = happened(number, self.hours)
            value = {"n": number, "at": when.isoformat(), "name": f"r{number}", "k": number % KEYS}
            bad = bool(bad_every) and number % bad_every == 0
            self.undecodable |= {number} if bad else set()
            self.bad |= {number} if bad or (self.expects and is_refused(number)) else set()
            text = "{not json" if bad else json.dumps(value)
            to = number % self.partitions if partition is None else partition
            producer.produce(self.topic, text, key=str(number), partition=to)
        assert producer.flush(30) == 0
        self.produced += count

    def add_topic(self, name: str, *values: bytes) -> None:
        """Create another topic, with one partition and these records in it."""
        self.broker.create_topic(name, 1, {"retention.ms": "-1"})
        producer = self.broker.producer()
        for value in values:
            producer.produce(name, value)
        assert producer.flush(30) == 0

    def send(
        self,
        *values: str | bytes | None,
        at: datetime | None = None,
        partition: int = 0,
        key: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Send these records, with the timestamp ``at``; ``everything`` does not count them."""
        producer = self.broker.producer()
        stamped = {} if at is None else {"timestamp": int(at.timestamp() * 1000)}
        for value in values:
            producer.produce(self.topic, value, key=key, partition=partition, headers=headers, **stamped)
        assert producer.flush(30) == 0

    def transact(self, *values: str, commit: bool, partition: int = 0) -> None:
        """Send records in a transaction; its end takes one more offset, also when it aborts, and is there."""
        offsets: list[int] = []
        producer = self.broker.producer(transactional_id=uuid4().hex)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(
                self.topic, value, partition=partition, on_delivery=lambda _, sent: offsets.append(sent.offset())
            )
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        if offsets:  # the broker answers before it has written the marker
            marker = max(offsets) + 1
            wait_until(
                lambda: self.broker.log_end(self.topic, partition) > marker, "the end of a transaction", timeout=30
            )

    def environment(self, **more: str) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDEMARK_")}
        own = {
            "TIDEMARK_DB": self.dsn,
            "TIDEMARK_PIPELINES": str(self.pipelines),
            "TIDEMARK_HOME": str(self.folder),
            "TIDEMARK_SPARK_JARS": str(self.spark_jars),
        }
        connections = {f"AIRFLOW_CONN_{name.upper()}": dsn for name, dsn in self.targets.items()}
        return {**inherited, **own, **connections, **more}

    def tidemark(
        self, *words: str, failpoint: str = "", spark: bool = False, on: str = "", **popen: Any
    ) -> subprocess.CompletedProcess[str]:
        """The command line in a new process (and group); without ``spark``, ``arrow_stage`` stages the orders, or the
        Spark Connect server ``on`` this address."""
        process = self.start(*words, failpoint=failpoint, spark=spark, on=on, **popen)
        out, err = process.communicate(timeout=180)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(
        self,
        *words: str,
        failpoint: str = "",
        spark: bool = False,
        on: str = "",
        env: dict[str, str] | None = None,
        **popen: Any,
    ) -> Command:
        """Start a command; with no Spark of its own and without options for ``Popen`` it is forked, and begins at
        once."""
        self.bury_the_dead()
        armed = {"TIDEMARK_FAILPOINT": failpoint} if failpoint else {}
        armed |= {"TIDEMARK_SPARK_REMOTE": on} if on else {}
        environment = self.environment(**armed, **(env or {}))
        if not spark and not popen:
            forked = fork_server(connects=bool(on)).start(words, environment)
            self.started.append(forked)
            return forked
        module = "tidemark.cli" if spark else "tests.worlds.command_without_spark"
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **popen,
        )
        self.started.append(process)
        return process

    def bury_the_dead(self) -> None:
        """Wait until the server has noticed that processes were killed, so that none of their attempts looks alive."""
        dead = sum((process.returncode or 0) < 0 for process in self.started)
        if dead > self.buried:
            with suppress(psycopg.Error):  # it is down, or refuses us, and has no session then
                wait_without_the_dead(self.dsn)
            self.buried = dead

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def lose_manifest_database(self) -> None:
        """An empty one stands in its place, which knows nothing of what was published."""
        empty(self.dsn)

    def stop(self) -> None:
        """Kill the processes of this test that still run, and have its topic deleted."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for database in self.opened:
            database.close()
        counts.REACHED[counts.HIT] += len(list(self.folder.glob("**/_failpoints/*")))  # a file for each that acted
        delete_later(self.broker, self.topic)
        self.remove_targets()

    def remove_targets(self) -> None:
        """Remove what lies neither in the folder nor in a database of the test."""

    def here(self, *words: str, color: bool = False) -> Result:
        """The command line in this process, with ``arrow_stage``: faster, but a failpoint must not kill it."""
        self.bury_the_dead()
        with mock.patch.object(engines, "stage_in", without_spark):
            return CliRunner().invoke(main.main, words, env=self.environment(), catch_exceptions=False, color=color)

    def ok(self, *words: str) -> str:
        done = self.here(*words)
        assert done.exit_code == 0, f"{words}: exit {done.exit_code}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def status(self, *words: str) -> Any:
        """What ``status`` prints as JSON, also when a person must look."""
        printed = self.here("status", *words, "--json")
        assert printed.exit_code in (0, 1), printed.output
        return json.loads(printed.stdout)

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def add_and_rename(self, sink: dict[str, Any], *others: dict[str, Any], to: str) -> None:
        """Run with the ``others``, add the sink and fill it, rename it, and run again; the sink is changed."""
        [(kind, settings)] = sink.items()
        self.settings["sinks"] = [*others]
        self.write_pipeline()
        self.produce(100)
        self.ok("run", self.name)
        self.settings["sinks"] = [*others, sink]
        self.write_pipeline()
        self.ok("fill", self.name, kind, "--why", "a new reader")
        self.assert_complete()
        settings["name"] = to
        self.write_pipeline()
        self.ok("rename", "sink", self.name, kind, to, "--why", "a better word")
        self.produce(40)
        self.ok("run", self.name)

    def rename(self, name: str) -> None:
        """The pipeline gets another name: in its file, and by the command."""
        old, self.name = self.name, name
        (self.pipelines / f"{old}.yaml").unlink()
        self.write_pipeline()
        self.ok("rename", "pipeline", old, name, "--why", "a better word")

    def manifests(self) -> list[dict[str, Any]]:
        """What ``tidemark manifests`` lists, oldest first."""
        listed: list[dict[str, Any]] = self.json("manifests", self.name)
        return listed[::-1]

    def context(self) -> Context:
        """A context in this process, closed when the test ends."""
        self.bury_the_dead()
        pipeline = find(self.pipelines, self.name)
        database = ManifestDatabase(self.dsn, "test")
        self.opened.append(database)  # of several threads each has its own
        with mock.patch.dict(os.environ, self.environment()):
            connections = {name: from_environment(name) for name in pipeline.connections()}
        return open_context(pipeline, database, connections.get)

    def truncated_at(self, end: int, partition: int = 0) -> None:
        """As a plan would have noted it that saw the log hold other records from an offset on; the log stays."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute("SET tidemark.actor = 'a test'")
            connection.execute(
                "UPDATE tidemark.chain SET blocked = 'cut', blocked_since = now(), blocked_end = %s "
                "WHERE retired_at IS NULL AND partition = %s",
                [end, partition],
            )

    def administer(self, call: str, *arguments: Any) -> None:
        """Call Kafka's admin client and wait: ``world.administer("delete_records", [..])``."""
        admin = self.broker.admin()
        for answer in getattr(admin, call)(*arguments).values():
            answer.result(timeout=30)

    def damage(self, manifest: dict[str, Any]) -> None:
        """Delete one published object of a manifest, given as in ``tidemark manifests --json``."""
        Path(manifest["objects"][0]["path"]).unlink()

    def object_keys(self) -> list[str]:
        """Every object of the lake, relative to its root, sorted."""
        paths = [path for path in self.lake.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return sorted(path.relative_to(self.lake).as_posix() for path in paths)

    # readers

    def exact(self) -> Counter[Place]:
        """What the exact reader returns: data and dead letters that ``tidemark objects`` names.

        A replay may remove a file while it is read. Then the reader must ask again, as docs/guarantees.md says.
        """
        before: list[Path] | None = None
        while (paths := self._published()) != before:
            with suppress(FileNotFoundError):
                return places(paths)
            before = paths
        raise FileNotFoundError(f"published, but missing: {[str(path) for path in paths if not path.exists()]}")

    def _published(self) -> list[Path]:
        with ManifestDatabase(self.dsn, "reader") as database:
            return [Path(root, published.path) for _, root, published in database.publications.objects(self.name)]

    def data_paths(self, *words: str) -> list[Path]:
        """The paths that ``tidemark objects`` prints."""
        return [Path(line) for line in self.ok("objects", self.name, *words).splitlines()]

    def files(self) -> Files:
        """Every file of the lake with its bytes and its time of writing."""
        paths = [path for path in self.lake.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.lake)): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    def listing(self) -> Counter[Place]:
        """What a reader that lists folders sees, with dead letters."""
        return places([path for path in self.lake.rglob("*.parquet") if not _hidden(path.relative_to(self.lake))])

    def recorded(self) -> Counter[Place]:
        """What a reader of records sees: the objects of the highest record of each manifest."""
        newest: dict[str, Path] = {}
        for path in sorted(self.lake.glob(f"_manifests/{self.name}/*.json")):
            newest[path.name.split(".")[0]] = path
        records = [json.loads(path.read_text()) for path in newest.values()]
        return places([self.lake / entry["path"] for record in records for entry in record["objects"]])

    def chain(self) -> list[tuple[int, str, int | None, int]]:
        """(partition, kind, start, end) of every range of the topic, in order."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(
                "SELECT partition, r.kind::text, start_offset, end_offset FROM tidemark.manifest_range r "
                "JOIN tidemark.chain c ON c.id = r.chain_id WHERE topic = %s ORDER BY c.id, end_offset",
                [self.topic],
            ).fetchall()

    def published_spans(self, sink: str = "files") -> Counter[Place]:
        """Every offset of manifests that are published in a sink."""
        with ManifestDatabase(self.dsn, "reader") as database:
            manifests = database.manifests.find(self.name)
            return _offsets([manifest for manifest in manifests if manifest.published(sink)])

    def spans(self, manifests: set[int]) -> Counter[Place]:
        """Every offset of some manifests."""
        with ManifestDatabase(self.dsn, "reader") as database:
            return _offsets(database.manifests.find(ids=sorted(manifests)))

    def everything(self) -> Counter[Place]:
        """Every offset that ``produce`` sent; only for topics without transactions."""
        per_partition = Counter(number % self.partitions for number in range(self.produced))
        return Counter((self.topic, at, offset) for at, count in per_partition.items() for offset in range(count))

    def assert_whole(self) -> None:
        """At any moment: exact readers see each published manifest completely, and nothing twice."""
        seen = self.exact()
        assert max(seen.values(), default=1) == 1
        assert seen == self.published_spans()

    def assert_readers_complete(self) -> None:
        """Every reader sees every record once."""
        everything = self.everything()
        assert self.exact() == everything
        assert self.listing() == everything
        assert self.recorded() == everything

    def assert_complete(self) -> None:
        """In the end: every reader sees every record once, the audit finds no difference, and staging is empty."""
        self.assert_readers_complete()
        assert self.ok("audit", self.name, "--deep") == ""
        assert self.staging() == []
        if self.expects:
            assert_told(self)

    def finish(self, run_key: str = "one") -> None:
        """After faults: nothing is half there, and a retry and a run under this key make everything complete."""
        self.assert_whole()
        self.ok("retry", self.name)
        self.ok("run", self.name, "--run-key", run_key)
        self.assert_complete()

    def staging(self) -> list[str]:
        """The content of staging, also an empty folder."""
        return [str(path) for path in self.lake.glob("_staging")]

    def lies_in_files(self) -> bool:
        """Whether there is a lake, for readers that list folders."""
        return self.lake.exists()


def _offsets(manifests: list[Manifest]) -> Counter[Place]:
    return Counter(
        (range_.at.topic, range_.at.partition, offset)
        for manifest in manifests
        for range_ in manifest.ranges
        for offset in range(range_.start, range_.end)
    )


def places(paths: list[Path]) -> Counter[Place]:
    seen: Counter[Place] = Counter()
    for path in paths:
        table = pq.read_table(path, columns=["_topic", "_partition", "_offset"], partitioning=None)
        seen.update(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    return seen


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and part != "_dead_letters" for part in path.parts)


def is_stopped(process: Command) -> bool:
    """Whether a process has stopped itself (SIGSTOP); one that has ended has not."""
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False


def wait_stopped(process: Command, timeout: float = 60) -> None:
    """Wait until the process has stopped itself (SIGSTOP); fails when it ends instead."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        assert process.poll() is None, f"ended instead of stopping: {process.communicate()}"
        if is_stopped(process):
            return
        time.sleep(0.02)
    raise AssertionError("did not stop")


def wake(process: Command) -> subprocess.CompletedProcess[str]:
    """SIGCONT, then ``wait_ended``."""
    os.killpg(process.pid, signal.SIGCONT)
    return wait_ended(process)


def wait_ended(process: Command) -> subprocess.CompletedProcess[str]:
    """Wait for the end of a process; its output and exit status."""
    out, err = ("", "") if process.returncode is not None else process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
