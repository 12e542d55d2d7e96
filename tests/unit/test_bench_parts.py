"""The parts of `make bench` hold together; nothing is timed here."""

import re
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pyarrow as pa

from bench import contender, debezium, decoding, fleet, fleet_report, flink, group, report, wide
from bench.__main__ import LARGE, LONG_PARTS, PARTS, SMALL
from bench.planning import SHAPES, MemorySource, pipeline
from bench.records import ALLOWED_LATENESS_S, COLUMNS, HOURS, LATE_EVERY, PARTITIONS, SCHEMA, START_S, messages
from bench.statements import LoggedSession, sessions
from bench.timed import Timing
from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.bootstrap.jars import locked
from sandbox.services.processes import wait_until
from tidemark.decoders.registry import open_decoder
from tidemark.kinds import DECODERS

COUNT = 30_000


def test_the_generator_gives_the_same_records_for_the_same_seed() -> None:
    assert list(islice(messages(COUNT), 500)) == list(islice(messages(COUNT), 500))
    assert list(islice(messages(COUNT, seed=1), 5)) != list(islice(messages(COUNT, seed=2), 5))


def test_every_record_fits_the_schema_and_lies_in_the_hours_that_the_tables_name() -> None:
    made = list(messages(COUNT))
    values = pa.array([message.value for message in made], pa.binary())
    decoded = open_decoder({"format": "json", "schema": SCHEMA}).decode(pa.record_batch({"value": values}))
    assert (decoded.errors, tuple(decoded.rows.schema.names)) == ((), COLUMNS)
    assert Counter(message.partition for message in made) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
    assert 165 <= sum(len(message.value) for message in made) / COUNT <= 180
    moments = decoded.rows.column("at").to_pylist()
    start = datetime.fromtimestamp(START_S, UTC)
    hours = {moment.replace(minute=0, second=0) for moment in moments}
    assert hours == {start + timedelta(hours=number) for number in range(HOURS)}
    behind = [message.stamp_ms / 1000 - moment.timestamp() for message, moment in zip(made, moments, strict=True)]
    late = sum(seconds > ALLOWED_LATENESS_S for seconds in behind)
    assert COUNT / LATE_EVERY * 0.9 <= late <= COUNT / LATE_EVERY  # in the first hours nothing can be late yet


def test_workers_that_take_turns_never_work_at_once_and_all_work_in_the_end() -> None:
    programs = [subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) for _ in range(2)]
    processes = [psutil.Process(program.pid) for program in programs]
    wait_until(lambda: all(process.children() for process in processes), "a child of each", timeout=60)
    children = [process.children()[0] for process in processes]
    seen: set[tuple[bool, ...]] = set()

    def at_work() -> tuple[bool, ...]:
        return tuple(child.status() != psutil.STATUS_STOPPED for child in children)

    def both_have_worked() -> bool:
        if (moment := at_work()) == at_work():  # no turn began between the two questions
            seen.add(moment)
        return seen >= {(True, False), (False, True)}

    try:
        with wide.half_of_the_time([process.pid for process in processes]):
            wait_until(lambda: not all(at_work()), "a turn to begin", timeout=60)
            wait_until(both_have_worked, "both to work", timeout=60, interval=0.01)
        assert (True, True) not in seen
        assert all(each.status() != psutil.STATUS_STOPPED for each in (*children, *processes))
    finally:
        for each in (*children, *processes):
            each.kill()
        for program in programs:
            program.wait()


def test_the_tables_name_every_contender_and_those_of_a_part_stand_between_its_marks(tmp_path: Path) -> None:
    timing = Timing(
        10.0, 5.0, 4.0, 0.4, 12.5, 1 << 30, 120, 1 << 27, [1, 2_500, 9_000], [1024, 2048, 1 << 20]
    ).as_dict()
    plans = [
        {"partitions": partitions, "ranges": ranges, "manifests": 1, "seconds": 0.1, "whole_table_reads_of_ranges": 0,
         "nodes": {"chains": ["Index Scan (range_one_end)"]}}
        for partitions, ranges in SHAPES
    ]  # fmt: skip
    turns = {"tidemark": (10.0, 20.0), "flink": (15.0, 30.0)}
    jobs = {
        kind: [timing | {"whole": whole, "cpu": whole * 2} for whole in turns.get(kind, (10.0, 10.0))]
        for kind in report.NAMES
    }
    decoders = {kind: {"decoder": 1.0, "pass": 2.0, "bytes": 170.0} for kind in decoding.FORMATS}
    figures = {
        "machine": report.machine(), "messages": 10, "runs": 1, "decoders": decoders, "jobs": jobs, "small": jobs,
        "plan": plans, "left_out": {"flink": flink.NO_COMPILER},
    }  # fmt: skip
    figures["sinks"] = [{"sink": sink, "messages": 120, "stage": 3.0, "publish": 1.0} for sink in ("files", "a topic")]
    slower = timing | {"job": 12.0, "cpu": 5.0}
    figures["streams"] = {
        "messages": 1_000_000,
        "timings": {"kafka": [timing | {"job": 10.0, "cpu": 10.0}], "rabbitmq": [slower]},
    }
    figures["wide"] = {variant.name: [timing | {"messages": variant.messages}] for variant in wide.VARIANTS}
    figures["files"] = {"200,000 messages in 100 partitions": [timing | {"files": 96, "bytes": 3 << 20}]}
    own, others = {"whole": 0.5, "cpu": 0.25}, {"whole": 10.0, "cpu": 20.0}
    turn = {"format": "iceberg", "rows": 5_000_000, "changed": 1_000, "tidemark": own}
    figures["rows"] = [turn | {"spark": others}, turn | {"spark": others | {"cpu": 10.0}}]
    step = {"whole": 10.0, "cpu": 5.0, "load": 0.5}
    figures["group"] = {"members": 200, "records": 200, "steps": dict.fromkeys(group.STEPS, step), "files": 200,
                        "dag": {"cpu": 0.02, "tasks": 4}}  # fmt: skip
    parts = report.sections(figures)
    text = "\n\n".join(parts.values())
    assert all(f"| {name} |" in text for name in report.NAMES.values())
    assert "| `tidemark run` with nothing new | 10.0 s | 5.0 s | 0.5 |" in text
    flinks = "22.5 s | 15.0 to 30.0 | 0 | 1.50 times | 45.0 s | 30.0 to 60.0 | 1.50 times |"
    assert f"| {report.NAMES['flink']} | {flinks}" in text
    assert f"{report.NAMES['flink']}, was left out: {flink.NO_COMPILER}" in text
    assert "the job alone 1.00 times as fast" in text
    assert "publish is 3.0% of the whole" in text
    assert "| a topic | 40 | 120 | 30 | 25.0% |" in text
    assert "by the tasks | 12.0 s | 83,333 | 1.20 times | 5.0 s | 5.0 us | 0.50 times |" in text
    assert "- `json`, Debezium: the decoder alone takes 1.0 times that of `json`, the pass 1.0 times" in text
    assert "| Iceberg | 1,000 | 0.25 s | 0.50 s | 15.0 s | 60.0 times | 10.0 s | 20.0 times |" in text
    assert "| 20,000,000 messages in one slice | 10.0 s | 10.0 to 10.0 | 2,000,000 | 12.5 s | 1,024 MiB |" in text
    assert (
        "- 20,000,000 messages, a cluster of 2 workers of one core each, half of the time: 1.00 times as quick" in text
    )
    assert "| 200,000 messages in 100 partitions | 96 | 3.0 | 2,500 | 12.5 s | 10.0 s | 10.0 to 10.0 |" in text
    kept = f"{report.BEGIN.format('page')}\nolder\n{report.END.format('page')}\nbelow\n"
    marks = (f"{report.BEGIN.format(name)}\nolder\n{report.END.format(name)}\n" for name in parts)
    (tmp_path / "README.md").write_text(f"above\n{''.join(marks)}{kept}")
    report.write_into(tmp_path / "README.md", parts)
    marks = (f"{report.BEGIN.format(name)}\n{part}\n{report.END.format(name)}\n" for name, part in parts.items())
    assert (tmp_path / "README.md").read_text() == f"above\n{''.join(marks)}{kept}"


def test_the_readme_has_a_place_for_every_part() -> None:
    readme = (CHECKOUT / "bench" / "README.md").read_text()
    for name in ("machine", *PARTS, *LONG_PARTS):
        assert readme.count(report.BEGIN.format(name)) == 1
        assert readme.count(report.END.format(name)) == 1


def test_every_contender_has_a_name_and_a_job() -> None:
    assert {*LARGE, "beside"} == set(report.NAMES) == {*contender.CONTENDERS, "flink", "beside"}
    assert set(SMALL) < set(LARGE)


def test_flink_reads_and_writes_the_columns_of_every_record() -> None:
    source = flink.SOURCE.read_text()
    [names] = re.findall(r"new String\[\] \{(.*?)\}", source, re.DOTALL)
    of_kafka = [f"_{name}" for name in (*contender.METADATA, "manifest_id")]
    assert re.findall(r'"(\w+)"', names) == [*of_kafka, *COLUMNS]
    [fields] = re.findall(r"class Event \{(.*?)\}", source, re.DOTALL)
    assert tuple(re.findall(r"public \w+ (\w+);", fields)) == COLUMNS


def test_flink_is_locked_in_the_versions_that_are_asked_for_and_without_hadoop() -> None:
    jars = [jar for jar in locked() if jar.set == flink.SET]
    asked = {
        (of.attrib["org"], of.attrib["name"]): of.attrib["rev"]
        for of in ET.parse(CHECKOUT / "jars" / "ivy.xml").iterfind(".//dependency")
        if of.get("conf", "").startswith("flink")
    }
    assert asked.items() <= {(jar.organisation, jar.name): jar.revision for jar in jars}.items()
    assert not any("hadoop" in jar.organisation for jar in jars)
    assert flink.version() in asked.values()


def test_every_registered_decoder_is_measured_with_the_same_records_in_its_format() -> None:
    values = [message.value for message in messages(20)]
    records = [decoding._read(value) for value in values]
    made, configs = decoding.encoders(values, records), decoding.configurations()
    assert set(made) == set(configs) == {*DECODERS, *debezium.FORMATS}
    rows = {}
    for kind, encode in made.items():
        [batch] = decoding._batches([encode(at) for at in range(len(values))])
        rows[kind] = open_decoder(configs[kind]).decode(batch).rows
    assert rows["json"].to_pylist() == rows["json_schema"].to_pylist() == rows["avro"].to_pylist()
    for name, plain in debezium.FORMATS.items():
        assert rows[name].to_pylist() == rows[plain].to_pylist()
    for column in ("id", "at", "user", "amount", "quantity", "mobile"):
        assert rows["protobuf"].column(column).to_pylist() == rows["avro"].column(column).to_pylist()
    assert set(decoding.measure(20, 1)) == set(decoding.FORMATS)


def test_the_source_in_memory_answers_for_every_partition() -> None:
    source = MemorySource(pipeline("lake"), partitions=3, end=7)
    places, missing = source.partitions(["bench"])
    assert (len(places), missing) == (3, [])
    assert {mark.log_end for mark in source.bounds(places).values()} == {7}
    assert {answer[0] for answer in source.offsets_at(places, datetime.now(UTC)).values() if answer} == {7}


# As PostgreSQL writes it: a plan, another database, the label of a task, and a task that gets the first one's process.
LOG = """\
2026-11-24 12:58:20 UTC [11] fleet LOG:  statement: SELECT pg_backend_pid() AS process
2026-11-24 12:58:20 UTC [11] fleet LOG:  execute <unnamed>: SELECT id
\tFROM database
2026-11-24 12:58:20 UTC [12] airflow LOG:  statement: SELECT pg_backend_pid() AS process
2026-11-24 12:58:20 UTC [11] fleet LOG:  statement: BEGIN
2026-11-24 12:58:20 UTC [13] fleet LOG:  statement: SELECT pg_backend_pid() AS process
2026-11-24 12:58:20 UTC [11] fleet LOG:  execute _pg3_0: SELECT set_config('tidemark.actor', $1, true)
2026-11-24 12:58:20 UTC [11] fleet DETAIL:  Parameters: $1 = 'airflow a scheduled__2026-11-24 plan try 1', $2 = ''
2026-11-24 12:58:20 UTC [11] fleet LOG:  statement: COMMIT
2026-11-24 12:58:21 UTC [11] fleet LOG:  statement: SELECT pg_backend_pid() AS process
2026-11-24 12:58:21 UTC [11] fleet LOG:  execute <unnamed>: SELECT set_config('tidemark.actor', $1, true)
2026-11-24 12:58:21 UTC [11] fleet DETAIL:  Parameters: $1 = 'airflow a scheduled__2026-11-24 process[0] try 2', $2 = ''
"""


def test_sessions_and_statements_of_each_task_are_counted_by_the_log() -> None:
    counted = sessions(LOG.splitlines(), "fleet")
    assert counted == [LoggedSession("plan", 5), LoggedSession("label", 1), LoggedSession("process", 2)]
    assert fleet.per_run([*counted, LoggedSession("plan", 2)], 2) == {
        "plan": {"sessions": 1.0, "statements": 3.5},
        "process": {"sessions": 0.5, "statements": 1.0},
        "label": {"sessions": 0.5, "statements": 0.5},
    }


def test_what_ends_when_another_begins_is_not_at_work_at_once() -> None:
    hours = [datetime(2026, 11, 24, hour, tzinfo=UTC) for hour in range(6)]
    assert fleet.most_at_once([]) == 0
    assert fleet.most_at_once([(hours[0], hours[1]), (hours[1], hours[2])]) == 1
    assert fleet.most_at_once([(hours[0], hours[3]), (hours[1], hours[4]), (hours[3], hours[5])]) == 2


def test_the_records_of_a_fleet_fit_the_schema_and_lie_in_the_hour_before_they_are_due() -> None:
    start = datetime(2026, 11, 24, 11, 7, tzinfo=UTC)
    made = list(fleet.records_of_hour(start))
    values = pa.array([value for _, _, value in made], pa.binary())
    decoded = open_decoder({"format": "json", "schema": SCHEMA}).decode(pa.record_batch({"value": values}))
    assert (decoded.errors, decoded.rows.num_rows) == ((), fleet.RECORDS)
    moments = decoded.rows.column("at").to_pylist()
    assert [round(moment.timestamp() * 1000) for moment in moments] == [stamp_ms for stamp_ms, _, _ in made]
    assert (moments[0], sorted(moments)) == (start, moments)
    assert moments[-1] < start + fleet.HOUR


def test_the_tables_of_a_fleet_have_its_runs_costs_and_targets() -> None:
    of_tasks = {"plan": 0.5, "process": 2.0, "close": 0.5}
    figures = {
        "pipelines": 10, "records": 1_000, "slots": 2, "tasks": 4, "wall": 50.0, "run": 20.0, "tasks_of_runs": of_tasks,
        "processing_at_once": 2, "tasks_at_once": 4, "processor": {"scheduler": 1.0, "Kafka": 0.25},
        "database": {"plan": {"sessions": 1.0, "statements": 30.0}, "close": {"sessions": 1.0, "statements": 20.0}},
        "counted": dict.fromkeys(("manifests", "done"), 10) | dict.fromkeys(("read", "written", "rows", "records"), 1),
        "by_hand": [{"whole": whole, **of_tasks} for whole in (8.0, 9.0, 7.0)],
        "parsing": [{"files": 11, "seconds": 0.3, "reading": 0.22, "storing": 0.5}],
    }  # fmt: skip
    text = fleet_report.text(figures)
    assert "which is 5.0 s each" in text
    assert "target: 200 within 20 minutes, which is 6.0 s each" in text
    assert "| in all | 1.25 s |" in text
    assert "| in all | 2.0 | 50.0 |" in text
    assert "8.0 s from the trigger to its end, 7.0 to 9.0" in text
    assert "| 11 | 0.3 s | 0.2 s | 20.0 ms | 0.5 s |" in text
