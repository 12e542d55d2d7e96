"""Pipelines in one Airflow as the engineer on call sees them: the page, ``status``, ``notify`` and the next steps."""

import html
import json
import random
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow.parquet as pq
import yaml
from confluent_kafka import TopicPartition
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sandbox.services.airflow import Airflow
from sandbox.services.broker import Broker
from sandbox.services.spark_server import SparkServer
from tests.worlds.airflow_world import postgres_connection
from tests.worlds.forked_command import fork_server
from tests.worlds.inbox import Inbox
from tidemark.operations.status import State

SOON = 60.0  # seconds within which page, status and notify must tell
EPOCH = datetime(2024, 3, 1, tzinfo=UTC)
SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING"
COMMAND = re.compile(r"tidemark( (?!and\b|or\b|then\b)[\w./=-]+)+")


@dataclass
class Nightly:
    """One pipeline: its file, its topic with two partitions, its DAG, and the numbers that its readers must see."""

    night: "Night"
    name: str
    broker: Broker
    topic: str
    sink: dict[str, Any]
    expected: set[int] = field(default_factory=set)
    settings: dict[str, Any] = field(default_factory=dict)
    sent: int = 0

    @property
    def file(self) -> Path:
        return self.night.pipelines / f"{self.name}.yaml"

    def write(self, text: str | None = None, **settings: Any) -> None:
        """The right file with these settings, or this text in its place."""
        self.settings |= settings
        source = {
            "bootstrap_servers": self.broker.bootstrap_servers, "topics": [self.topic], "slice": {"max_records": 1000},
        }  # fmt: skip
        pipeline = {
            "pipeline": self.name,
            "retries": 0,
            "max_active_runs": 3,
            "spark": {"engine": "connect"},
            "source": {"kafka": source},
            "decode": {"format": "json", "schema": SCHEMA},
            "event_time": {"field": "at"},
            "on_error": "dead_letter",
            "sinks": [self.sink],
            **self.settings,
        }
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump(pipeline) if text is None else text)
        new.rename(self.file)

    def produce(self, count: int = 20, *values: str) -> None:
        """Numbered records, and after them these values, to both partitions in turn."""
        numbers = range(self.sent, self.sent + count)
        records = [
            json.dumps({"n": n, "at": (EPOCH + timedelta(minutes=n % 120)).isoformat(), "name": f"r{n}"})
            for n in numbers
        ]
        producer = self.broker.producer()
        for index, value in enumerate([*records, *values]):
            producer.produce(self.topic, value, partition=index % 2)
        assert producer.flush(30) == 0
        self.sent += count
        self.expected |= set(numbers)

    def lose(self, partition: int) -> None:
        """Delete the records of a partition as retention does; those that are not read yet are lost."""
        end = self.broker.log_end(self.topic, partition)
        admin = self.broker.admin()
        for answer in admin.delete_records([TopicPartition(self.topic, partition, end)]).values():
            answer.result(30)

    def start(self, conf: dict[str, Any] | None = None) -> str:
        return self.night.airflow.trigger(self.name, conf)

    def ended(self, run_id: str) -> str:
        return self.night.airflow.wait_run(self.name, run_id, timeout=240)

    def run(self, conf: dict[str, Any] | None = None) -> str:
        """A run of its DAG to its end, which must be success; returns its id."""
        run_id = self.start(conf)
        assert self.ended(run_id) == "success", self.log(run_id)
        return run_id

    def fails(self, conf: dict[str, Any] | None = None) -> str:
        """A run of its DAG to its end, which must be failed; returns the log of what failed."""
        run_id = self.start(conf)
        assert self.ended(run_id) == "failed", self.log(run_id, ("success",))
        return self.log(run_id)

    def log(self, run_id: str, states: tuple[str, ...] = ("failed",)) -> str:
        airflow = self.night.airflow
        instances = [task for task in airflow.task_instances(self.name, run_id) if task["state"] in states]
        return "\n".join(airflow.task_log(self.name, run_id, task)[-4000:] for task in instances)

    def numbers(self) -> Counter[int]:
        """What readers of its lake or table see."""
        if "files" in self.sink:
            files = Path(self.sink["files"]["root"]).glob("raw/**/*.parquet")
            return Counter(n for file in files for n in pq.read_table(file, partitioning=None)["n"].to_pylist())
        return Counter(n for (n,) in self.night.execute(f"SELECT n FROM public.{self.name} WHERE NOT _is_deleted"))

    def newest(self) -> dict[str, Any]:
        """The newest manifest, as ``tidemark manifests`` lists it."""
        [manifest] = json.loads(self.night.ok("manifests", self.name, "--limit", "1", "--json"))
        return dict(manifest)

    def type(self, step: str, words: str) -> str:
        """Type the command of a next step that begins with these words, as it stands there; returns what it prints."""
        commands = [match[0] for match in COMMAND.finditer(step) if match[0].startswith(f"tidemark {words} ")]
        assert commands, f"no tidemark {words} in: {step}"
        return self.night.type(commands[0].replace("TEXT", "a-fault-of-the-night"))


@dataclass
class Night:
    """The night of one Airflow. ``broker`` serves only one pipeline, ``server`` is the Spark of all; both may die.

    ``disk`` is a small file system; None if it cannot be mounted. ``variables`` are those of the engineer's shell,
    beside Airflow's.
    """

    airflow: Airflow
    browser: httpx.Client
    inbox: Inbox
    superuser: str
    pipelines: Path
    broker: Broker
    server: SparkServer
    warehouse: str
    disk: Path | None
    dice: random.Random = field(default_factory=random.Random)
    variables: dict[str, str] = field(default_factory=dict)
    all: dict[str, Nightly] = field(default_factory=dict)
    open: list[tuple[Any, ...]] = field(default_factory=list)  # what people were told and is not over

    @property
    def environment(self) -> dict[str, str]:
        return {**self.airflow.env, **self.variables}

    def here(self, *words: str) -> tuple[int, str, str]:
        """A command that processes nothing, forked: it begins at once."""
        command = fork_server().start(words, self.environment)
        out, err = command.communicate(timeout=120)
        assert command.returncode is not None
        return command.returncode, out, err

    def ok(self, *words: str) -> str:
        code, out, err = self.here(*words)
        assert code == 0, f"{words}: exit {code}\n{out}\n{err}"
        return out

    def type(self, command: str) -> str:
        """A command as a person types it, in a process of its own, with Spark."""
        program, *words = command.split()
        assert program == "tidemark"
        done = subprocess.run(
            [sys.executable, "-m", "tidemark.cli", *words],
            env=self.environment, text=True, capture_output=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def execute(self, statement: str) -> list[Any]:
        """A statement of the table's owner, and what it returns."""
        with psycopg.connect(self.warehouse, autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def new_password(self) -> None:
        """The table's owner gets another password; Airflow and the shell have the old one."""
        owner = conninfo_to_dict(self.warehouse)["user"]
        password = secrets.token_urlsafe(9)
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            change = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(str(owner)), password)
            connection.execute(change)
        self.warehouse = make_conninfo(self.warehouse, password=password)

    def tell_airflow(self) -> None:
        """Airflow and the shell get the present password."""
        parts = postgres_connection(self.warehouse)
        self.airflow.delete_connection("warehouse")
        self.airflow.create_connection("warehouse", **parts)
        self.variables["AIRFLOW_CONN_WAREHOUSE"] = json.dumps(parts)

    def remove(self) -> None:
        """Take the pipelines out of Airflow's folder: the next module has others."""
        for each in self.all.values():
            each.file.unlink(missing_ok=True)
            (self.pipelines.parent / "_pipelines" / f"{each.name}.json").unlink(missing_ok=True)
        (self.pipelines.parent / "_notified.json").unlink(missing_ok=True)
        self.airflow.parse()

    def statuses(self) -> dict[str, Any]:
        """What ``status`` says of each, after a look at its exit status: 1 when a person must look."""
        code, out, err = self.here("status", "--json")
        views = {view["pipeline"]: view for view in json.loads(out)}
        assert code == (1 if any(not view["healthy"] for view in views.values()) else 0), err
        return views

    def page(self, path: str) -> str:
        answer = self.browser.get(f"/tidemark/{path}")
        assert answer.status_code == 200, answer.text
        return answer.text

    def listed(self) -> tuple[str, dict[str, str]]:
        """The title of the page's list of pipelines, and the words in the row of each, with its reason."""
        text = self.page("")
        rows = [shown(row) for row in text.partition("<tbody>")[2].split('<th scope="row">')[1:]]
        return shown(text.partition("</title>")[0]), {row.split()[0]: row for row in rows}

    def notices(self) -> list[dict[str, Any]]:
        """What people are told now, without a wait for what may end by itself."""
        self.ok("monitor", "notify", "--after", "0s")
        messages = [*self.inbox.got]
        self.inbox.got.clear()
        for message in messages:
            problem = message["pipeline"], message["kind"], message["manifest_id"], message["place"]
            if message["over"]:
                self.open.remove(problem)
            else:
                self.open.append(problem)
        return messages

    def differs(self, name: str, view: Mapping[str, Any]) -> str:
        """How the page of a pipeline, and its JSON, say anything else than ``status``; "" when they do not."""
        of_page = json.loads(self.page(f"api/pipelines/{name}"))
        if of_page["state"] != view["state"] or words(of_page) != words(view):
            return f"the API says {of_page['state']}: {of_page['problems']}"
        own = shown(self.page(f"pipelines/{name}"))
        missing = [text for text in (f"{name} {view['state']}", *parts(view)) if bare(text) not in bare(own)]
        return f"its page lacks {missing}: {own[:600]}" if missing else ""

    def wrong(self, struck: Mapping[str, tuple[State, str]], looked_at: str) -> tuple[str, Mapping[str, Any]]:
        """What is not yet, or not alike, told by ``status`` and the page, "" when all is; and what ``status`` says. Of
        the pipelines that are not struck both must say that they are in order."""
        views = self.statuses()
        title, rows = self.listed()
        for name, view in views.items():
            word, cause = struck.get(name, (State.OK, ""))
            of_status = f"{name}: {view['state']}: {'; next: '.join(words(view))}"
            if view["state"] != word or cause not in of_status:
                return f"status says {of_status}", views
            if not all(bare(text) in bare(rows[name]) for text in (f"{name} {word}", *parts(view, with_offsets=False))):
                return f"status says {of_status}; the list says {rows[name]}", views
            if name == looked_at and (other := self.differs(name, view)):
                return f"status says {of_status}; {other}", views
        # A DAG of another test that this Airflow does not call stale yet is one that nothing was planned of.
        others = [row for name, row in rows.items() if name not in views and "never planned" not in row]
        if others:
            return f"the list has {others}", views
        needing = f"{len(struck)} of {len(rows)} need a person: Pipelines" if struck else "Pipelines"
        return ("" if title.startswith(needing) else f"the title is {title}"), views

    def told(self, looked_at: str, struck: Mapping[str, tuple[State, str]]) -> Mapping[str, Any]:
        """Wait until page, ``status`` and ``notify`` tell the same of the struck pipelines, and nothing of others; then
        all that people were told before is over. Returns what ``status`` says; the page of one pipeline is looked at.

        Of others people are told nothing meanwhile either, but that a source did not answer in time: on a machine that
        is busy with other tests it may take longer than the 8 s of ``notify``.
        """
        begun, notices = time.monotonic(), []
        while True:
            wrong, views = self.wrong(struck, looked_at)
            notices += [notice for notice in self.notices() if not notice["over"]]
            others = [notice for notice in notices if notice["pipeline"] not in struck]
            assert all(notice["kind"] == State.UNKNOWN for notice in others), f"told of others: {others}"
            problems = {problem for name, view in views.items() for problem in _told_once(name, view["problems"])}
            if not wrong and problems == {(name, kind) for name, kind, *_ in self.open}:
                break
            assert time.monotonic() - begun < SOON, f"{wrong or problems}; notices: {notices}, open: {self.open}"
            time.sleep(1)
        for name in struck:
            texts = [plain(notice["text"]) for notice in notices if notice["pipeline"] == name]
            assert any(words(views[name])[1] in text for text in texts), f"{words(views[name])} not in {texts}"
        return views


def _told_once(name: str, problems: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The kinds of problems, the worst first, without those that have the cause of a worse one."""
    causes = set()
    for problem in problems:
        if problem["shared_cause"] is None or problem["shared_cause"] not in causes:
            yield name, problem["kind"]
        causes.add(problem["shared_cause"])


def words(view: Mapping[str, Any]) -> list[str]:
    """The reason and the next step of the worst problem, if there is one."""
    return [plain(view["problems"][0][key]) for key in ("what", "next_step")] if view["problems"] else []


def parts(view: Mapping[str, Any], *, with_offsets: bool = True) -> list[str]:
    """What a page shows of the worst problem: the cause stands first, and that of a manifest in other words; the list
    leaves out its offsets.
    """
    if not view["problems"]:
        return []
    what, next_step = words(view)
    if view["problems"][0]["manifest_id"] is None:
        return [*(part for part in re.split(r"(?<= UTC): | \(|\)", what) if part), next_step]
    offsets = re.findall(r"\S+ \[\d+, \d+\)", what) if with_offsets else []
    return [f"manifest {view['problems'][0]['manifest_id']}", *offsets, next_step]


def plain(text: str) -> str:
    """A message with one space between its words."""
    return " ".join(text.split())


def bare(text: str) -> str:
    """Words without what ends parts of a sentence, where the page begins a new line, and without its buttons."""
    return plain(re.sub(r"[;:,.](?=\s|$)", "", text).replace(" copy ", " "))


def shown(page: str) -> str:
    """The words that a page shows."""
    return plain(html.unescape(re.sub(r"<[^>]+>", " ", page)))
