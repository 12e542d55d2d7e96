"""``transform`` of a pipeline file through the command line: what is kept, what is counted, and who is told."""

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import TopicPartition as KafkaPlace

from tests.worlds.table_world import TableWorld, table_sink
from tests.worlds.world import World
from tidemark.pipeline.deployed import deployed

MakeWorld = Callable[..., World]
ONE_SLICE = {"kafka": {"slice": {"max_records": 1000}}}
PRICES = """
import pyarrow as pa
import pyarrow.compute as pc

from parts.names import SHORTEST


def add_length(batch):
    print("one line for each batch")
    kept = batch.filter(pc.greater_equal(pc.binary_length(batch["name"]), SHORTEST))
    made = [kept["_ordinal"], kept["n"], kept["at"], pc.binary_length(kept["name"])]
    return pa.RecordBatch.from_arrays(made, ["_ordinal", "n", "at", "length"])
"""
CODE = {"code/prices.py": PRICES, "code/parts/names.py": "SHORTEST = 3\n".replace("\\\n", "\n")}
COLUMNS = {"n": "BIGINT NOT NULL", "at": "TIMESTAMPTZ", "length": "INTEGER"}


def logic(*transform: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**ONE_SLICE, "transform": list(transform), **more}


def write(world: World, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = world.pipelines / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def rows(world: World, columns: str, *, dead_letters: bool = False) -> list[tuple[Any, ...]]:
    paths = [str(path) for path in world.data_paths(*(["--dead-letters"] if dead_letters else []))]
    return duckdb.sql(f"SELECT {columns} FROM read_parquet({paths}) ORDER BY ALL").fetchall()


def counts(world: World) -> tuple[int, ...]:
    """(read, written, dead-lettered, filtered, deduplicated) of all manifests."""
    names = ("read", "written", "dead_lettered", "filtered", "deduplicated")
    by_manifest = [manifest["counts"] for manifest in world.manifests()]
    return tuple(sum(each[name] for each in by_manifest) for name in names)


def test_all_kinds_one_after_the_other_and_every_record_is_accounted_for(make_world: MakeWorld) -> None:
    world = make_world(settings=ONE_SLICE)
    write(world, {**CODE, "clean.sql": 'SELECT n % 50 AS n, "at", name\nFROM batch\nWHERE n <> 30\n'})
    world.settings = logic(
        {"filter": "n < 90"},
        {"sql": "clean.sql"},
        {"python": {"function": "prices:add_length", "columns": COLUMNS}},
        {"dedupe": {"keys": ["n"]}},
        {
            "select": [
                "n",
                '"at"',
                "length",
                "CASE WHEN n = 40 THEN error('forty') ELSE n END AS checked",
                "_offset AS o",
            ]
        },
        code="code",
    )
    world.write_pipeline()
    world.produce(100, bad_every=9)
    out = world.here("run", "demo", "--run-key", "one")
    assert out.exit_code == 0, out.stderr
    assert "one line for each batch" not in out.stdout
    left = [n for n in range(90) if n % 9 and n != 30 and len(f"r{n}") >= 3]
    # Two partitions, even and odd numbers: n % 50 repeats within one.
    firsts = sorted({n % 50: n for n in reversed(left)}.values())
    good = [n for n in firsts if n % 50 != 40]
    assert rows(world, "n, checked, length, o") == sorted((n % 50, n % 50, len(f"r{n}"), n // 2) for n in good)
    bad = len(range(0, 100, 9)) + len(firsts) - len(good)
    decoded = 100 - len(range(0, 100, 9))
    assert counts(world) == (100, len(good), bad, decoded - len(left), len(left) - len(firsts))
    assert world.ok("audit", "demo", "--deep") == ""
    reasons = [reason for (reason,) in rows(world, "_reason", dead_letters=True) if "transform" in reason]
    assert reasons == ["transform[4].select: Invalid Input Error: forty"]
    assert world.here("replay", "demo", "--manifest", "1").stderr.count("unchanged") == 1


def test_on_error_fail_names_transform_file_line_and_offset(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings=ONE_SLICE)
    write(
        world, {"code/prices.py": "def check(batch):\n    assert 7 not in batch['n'].to_pylist()\n    return batch\n"}
    )
    world.settings = logic({"python": "prices:check"}, code="code", on_error="fail")
    world.write_pipeline()
    world.produce(20)
    failed = world.here("run", "demo", "--run-key", "one")
    assert failed.exit_code == 1
    printed = " ".join(failed.stderr.split())
    assert "transform[0].python: code/prices.py:2: AssertionError" in printed
    assert f"topic={world.topic} partition=0 offset=7" in printed
    world.settings = logic(
        {"select": ["n", '"at"', "replace(name, 'r', '') AS name"]}, {"sql": "no.sql"}, on_error="fail"
    )
    write(world, {"no.sql": "SELECT n, \"at\", CAST(replace(name, '7', 'seven') AS INTEGER) AS name FROM batch"})
    world.write_pipeline()
    printed = " ".join(world.here("retry", "demo").stderr.split())
    assert "transform[1].sql: no.sql: Conversion Error: Could not convert string '..' to INT32" in printed
    assert "offset=7" in printed
    world.settings = logic({"python": "prices:check"}, code="code", on_error="fail")
    world.write_pipeline()
    write(world, {"code/prices.py": "def check(batch):\n    return batch.num_rows\n"})
    for words in (("retry", "demo"), ("peek", "demo")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert "correct the code, try it with: tidemark peek demo" in refused.stderr, words
        assert ("; then: tidemark retry demo\n" in refused.stderr) == (words[0] == "retry")
        assert "{" not in refused.stderr
    write(world, {"code/prices.py": "def check(batch):\n    return batch\n"})
    world.ok("peek", "demo")
    world.ok("retry", "demo")
    assert counts(world) == (20, 20, 0, 0, 0)


@pytest.mark.parametrize("point", ["stage.mid", "publish.before_mark"])
def test_killed_with_logic_at_work_nothing_is_missing_and_nothing_twice(make_world: MakeWorld, point: str) -> None:
    world = make_world(settings=ONE_SLICE)
    write(world, CODE)
    world.settings = logic({"filter": "n % 3 <> 0"}, {"dedupe": {"keys": ["name"]}}, {"python": {
        "function": "prices:add_length", "columns": COLUMNS}}, code="code")  # fmt: skip
    world.write_pipeline()
    world.produce(60, bad_every=7)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.ok("retry", "demo")
    kept = [n for n in range(60) if n % 7 and n % 3 and n > 9]
    assert rows(world, "n") == [(n,) for n in kept]
    assert counts(world) == (60, len(kept), 9, 51 - len(kept), 0)
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.staging() == []


@pytest.mark.parametrize("most", [7, 1000])
def test_the_rows_are_the_same_whatever_the_slices(make_world: MakeWorld, most: int) -> None:
    select = {"select": ["n", '"at"', "upper(name) || _offset AS name"]}
    world = make_world(settings={"kafka": {"slice": {"max_records": most}}, "transform": [{"filter": "n > 4"}, select]})
    world.produce(60)
    world.ok("run", "demo", "--run-key", "one")
    assert rows(world, "_partition, _offset, n, name") == sorted(
        (n % 2, n // 2, n, f"R{n}{n // 2}") for n in range(5, 60)
    )
    assert counts(world) == (60, 55, 0, 5, 0)


def test_other_logic_makes_other_rows_in_a_replay_and_the_fingerprint_knows(make_world: MakeWorld) -> None:
    world = make_world(settings=logic({"filter": "n < 10"}))
    world.produce(20)
    world.ok("run", "demo", "--run-key", "one")
    world.settings = logic({"filter": "n < 5"})
    world.write_pipeline()
    replayed = world.here("replay", "demo", "--manifest", "1")
    assert "published" in replayed.stderr
    assert "deterministic" not in replayed.stderr
    assert rows(world, "n") == [(n,) for n in range(5)]


def test_code_that_makes_other_rows_each_time_is_named_to_whoever_replays_and_in_history_and_audit(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=1, settings=ONE_SLICE)
    count = world.folder / "calls"
    count.write_text("")
    text = (
        f"import pathlib\nimport pyarrow as pa\ndef moody(batch):\n    calls = pathlib.Path({str(count)!r})\n"
        "    calls.write_text(calls.read_text() + 'x')\n"
        "    names = pa.array([calls.read_text()] * len(batch))\n"
        "    return batch.set_column(batch.schema.get_field_index('name'), 'name', names)\n"
    )
    write(world, {"code/moods.py": text})
    world.settings = logic({"python": "moods:moody"}, code="code")
    world.write_pipeline()
    world.produce(10)
    world.ok("run", "demo", "--run-key", "one")
    replayed = world.here("replay", "demo", "--manifest", "1")
    sentence = "not deterministic: attempt 1 had the same code and the same records, and made other rows for sink files"
    assert sentence in " ".join(replayed.stderr.split())
    shown = world.json("show", "1")
    assert [attempt["note"] for attempt in shown["attempts"]] == [None, sentence]
    assert "not deterministic" in " ".join(world.ok("show", "1").split())
    audited = world.here("audit", "demo")
    assert audited.exit_code == 1
    assert "not deterministic" in " ".join(audited.stdout.split())
    write(world, {"code/moods.py": "def moody(batch):\n    return batch\n"})
    world.ok("replay", "demo", "--manifest", "1")
    assert world.ok("audit", "demo") == ""


def test_peek_shows_rows_before_and_after_and_what_was_taken_away(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.settings = {"transform": [{"filter": "n > 2"}, {"select": ["n * 10 AS ten", '"at"']}]}
    world.write_pipeline()
    world.produce(5)
    seen = [json.loads(line) for line in world.ok("peek", "demo", "--json").splitlines()]
    assert [(row["offset"], row["data"]["ten"], row["before"]["name"]) for row in seen[:2]] == [
        (3, 30, "r3"),
        (4, 40, "r4"),
    ]
    assert [(row["offset"], row["data"]["n"], row["taken_away"]) for row in seen[2:]] == [
        (at, at, True) for at in range(3)
    ]
    done = world.here("peek", "demo")
    assert "2 rows, 0 dead letters, 3 taken away by the transforms; nothing was written" in done.stderr
    assert '-> {"ten":30' in done.stdout
    assert '"name":"r3"' in done.stdout


def test_a_table_has_the_columns_after_the_transforms_and_a_deletion_passes_every_filter(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world(
        partitions=1,
        settings={
            **ONE_SLICE,
            "decode": {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP, name STRING", "tombstones": ["n"]},
            "transform": [
                {"filter": "name <> 'no'"},
                {"select": ["n AS number", '"at"', "coalesce(upper(name), '') AS called"]},
                {"dedupe": {"keys": ["number"]}},
            ],
            "event_time": {"from": "source_timestamp"},
            "sinks": [table_sink(key=["number"], order_by=None)],
        },
    )
    for n, name in [(1, "one"), (2, "no"), (3, "three"), (1, "uno"), (3, None)]:
        value = None if name is None else json.dumps({"n": n, "at": "2024-03-01T00:00:00Z", "name": name})
        world.send(value, key=json.dumps({"n": n}).encode())
    world.ok("run", "demo", "--run-key", "one")
    assert world.query("SELECT number, called, _is_deleted FROM public.latest ORDER BY number") == [
        {"number": 1, "called": "ONE", "_is_deleted": False}, {"number": 3, "called": "", "_is_deleted": True},
    ]  # fmt: skip
    assert counts(world) == (5, 3, 0, 1, 1)
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_key_of_a_table_that_logic_may_make_null_is_refused_when_the_file_is_read(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world()
    world.settings = {**world.settings, "transform": [{"select": ["n", '"at"', "k + 1 AS k"]}]}
    world.write_pipeline()
    refused = world.here("validate")
    assert refused.exit_code == 2
    assert "may not have k in its key: it can be null" in " ".join(refused.stderr.split())
    world.settings["transform"] = [{"select": ["n", '"at"', "coalesce(k + 1, 0) AS k"]}]
    world.write_pipeline()
    assert world.here("validate").exit_code == 0


def test_the_last_right_code_and_sql_are_kept_with_the_file_for_airflow(make_world: MakeWorld) -> None:
    world = make_world()
    write(world, {**CODE, "some.sql": "SELECT * FROM batch"})
    world.settings = {"code": "code", "transform": [{"sql": "some.sql"}, {"python": {
        "function": "prices:add_length", "columns": COLUMNS}}]}  # fmt: skip
    world.write_pipeline()
    [right] = deployed(world.pipelines, world.environment())
    Path(world.pipelines / "some.sql").unlink()
    Path(world.pipelines / "code" / "prices.py").unlink()
    [kept] = deployed(world.pipelines, world.environment())
    assert right.problem is None
    assert kept.problem is not None
    assert kept.pipeline.fingerprint() == right.pipeline.fingerprint()


def send_at(world: World, *minutes_and_numbers: tuple[int, int]) -> None:
    """Records with these numbers, written so many minutes after noon."""
    for minute, number in minutes_and_numbers:
        stamped = datetime(2024, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=minute)
        world.send(json.dumps({"n": number, "at": "2024-03-01T12:00:00Z"}), at=stamped)


WITHIN = {
    "kafka": {"slice": {"max_records": 3}},
    "decode": {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"},
    "transform": [{"filter": "n <> 9"}, {"dedupe": {"keys": ["n"], "within": "10m"}}],
}


def test_dedupe_within_drops_what_an_earlier_manifest_has_in_any_order_and_in_a_replay(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings=WITHIN)
    send_at(world, (0, 1), (1, 2), (1, 9), (5, 1), (6, 9), (7, 3), (14, 1), (18, 3), (25, 1))
    world.send("cannot be decoded", at=datetime(2024, 3, 1, 12, 26, tzinfo=UTC))
    send_at(world, (27, 1), (40, 9))
    world.ok("plan", "demo")
    assert [manifest["id"] for manifest in world.manifests()] == [1, 2, 3, 4]
    told = [world.here("retry", "demo", "--manifest", str(manifest)).stderr for manifest in (4, 2, 3, 1)]
    assert ["deduplicated 1" in text for text in told] == [True, True, True, False], told
    # 1 at 5 and 14 follow on it within 10 minutes, at 25 it does not, and at 27 it does; 3 came 11 minutes before.
    assert rows(world, "_offset, n") == [(0, 1), (1, 2), (5, 3), (7, 3), (8, 1)]
    assert counts(world) == (12, 5, 1, 3, 3)
    assert [manifest["counts"]["deduplicated"] for manifest in world.manifests()] == [0, 1, 1, 1]
    assert world.ok("audit", "demo", "--deep") == ""
    for manifest in ("3", "2"):
        assert world.here("replay", "demo", "--manifest", manifest).stderr.count("unchanged") == 1


def test_dedupe_within_fails_where_retention_took_what_it_looks_back_to(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings=WITHIN)
    send_at(world, (0, 1), (1, 2), (2, 4), (3, 1), (4, 5), (5, 2), (30, 1), (31, 1), (32, 2))
    world.ok("run", "demo", "--run-key", "one")
    before = rows(world, "_offset")
    world.administer("delete_records", [KafkaPlace(world.topic, 0, 2)])
    refused = " ".join(world.here("replay", "demo", "--manifest", "2").stderr.split())
    assert "offsets [0, 2) are gone" in refused
    assert "write a shorter within" in refused
    assert rows(world, "_offset") == before
    # The third looks back to 12:20, and the log still has a record that is older.
    assert world.here("replay", "demo", "--manifest", "3").stderr.count("unchanged") == 1


def test_extend_back_says_that_a_key_may_be_published_again(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={**WITHIN, "kafka": {"starting_offsets": "latest"}})
    send_at(world, (0, 1))
    world.ok("run", "demo")
    send_at(world, (5, 1), (6, 2))
    world.ok("run", "demo")
    warning = "dedupe looks back: a key that newer manifests have published already is published again"
    assert warning in world.ok("extend-back", "demo", "--why", "older ones are wanted", "--dry-run")
    assert warning in world.ok("extend-back", "demo", "--why", "older ones are wanted")
    world.ok("retry", "demo")
    assert rows(world, "_offset, n") == [(0, 1), (1, 1), (2, 2)]


def test_dedupe_within_looks_back_over_a_log_that_was_cut(make_world: MakeWorld) -> None:
    """Published below the cut, and written again above it: one log, so it goes. What lies above the cut was read in the
    generation before, too; a person said that it is read again."""
    world = make_world(partitions=1, settings={**WITHIN, "kafka": {"slice": {"max_records": 100}}})
    send_at(world, (0, 1), (1, 2), (2, 3), (3, 4))
    world.ok("run", "demo")
    for end, more in ((3, [(4, 1), (5, 4)]), (2, [(6, 2), (30, 1)])):
        world.truncated_at(end)
        where = ("--topic", world.topic, "--partition", "0", "--from", str(end))
        world.ok("accept", "truncation", "demo", *where, "--why", "a restored disk")
        send_at(world, *more)
        world.ok("run", "demo")
    counted = [(each["counts"]["read"], each["counts"]["deduplicated"]) for each in world.manifests()]
    assert counted == [(4, 0), (3, 2), (6, 3)]
    # 1 at 4 and 2 at 6 are below each cut; 4 at 5 follows on 4 at 3, which each generation has read; 1 at 30 is new.
    assert rows(world, "_offset, n") == [(0, 1), (1, 2), (2, 3), (2, 3), (3, 4), (3, 4), (3, 4), (7, 1)]
    assert world.ok("audit", "demo", "--deep") == ""


ORDER = {
    "format": "json",
    "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, lines ARRAY<STRUCT<sku: STRING, q: INT>>",
}
LINES = [
    {"explode": {"column": "lines"}},
    {"filter": "lines.q > 0"},
    {"select": ["n", '"at"', "lines.sku AS sku", "CASE WHEN lines.q > 99 THEN error('many') ELSE lines.q END AS q"]},
]


def order_of(n: int, *lines: tuple[str, int]) -> str:
    of = [{"sku": sku, "q": q} for sku, q in lines]
    return json.dumps({"n": n, "at": "2024-03-01T12:00:00Z", "lines": of})


@pytest.mark.parametrize("format_of_files", ["parquet", "jsonl", "avro"])
def test_explode_gives_a_row_for_each_element_and_both_equations_hold(
    make_world: MakeWorld, format_of_files: str
) -> None:
    lake = {"files": {"root": "lake", "format": format_of_files}}
    world = make_world(partitions=1, settings={**ONE_SLICE, "decode": ORDER, "transform": LINES, "sinks": [lake]})
    world.send(order_of(1, ("a", 1), ("b", 0), ("c", 3)), order_of(2), order_of(3, ("a", 0)))
    world.send(order_of(4, ("a", 1), ("b", 100), ("c", 3)), "no order", order_of(5, ("e", 5)))
    world.ok("run", "demo")
    [manifest] = world.manifests()
    assert manifest["counts"]["exploded"] == 1
    assert counts(world) == (6, 3, 2, 2, 0)
    assert world.ok("audit", "demo", "--deep") == ""
    if format_of_files == "parquet":
        assert rows(world, "_offset, _row, n, sku, q") == [(0, 0, 1, "a", 1), (0, 2, 1, "c", 3), (5, 0, 5, "e", 5)]
    assert world.here("replay", "demo", "--manifest", "1").stderr.count("unchanged") == 1
    peeked = [json.loads(line) for line in world.ok("peek", "demo", "--json").splitlines()]
    assert [row["row"] for row in peeked if "before" in row] == [0, 2, 0]


def test_a_table_of_exploded_rows_has_the_number_of_the_row_in_its_key(
    make_table_world: Callable[..., TableWorld],
) -> None:
    logic = {**ONE_SLICE, "decode": ORDER, "transform": LINES}
    table = table_sink(key=["n", "_row"])
    world = make_table_world(partitions=1, settings={**logic, "sinks": [table_sink(key=["n"])]})
    assert "must have _row in its key" in " ".join(world.here("validate").stderr.split())
    world.settings = {**logic, "sinks": [table]}
    world.write_pipeline()
    world.send(order_of(1, ("a", 1), ("b", 0), ("c", 3)), order_of(2, ("d", 4)), order_of(1, ("z", 9)))
    world.ok("run", "demo")
    names = world.query("SELECT n, _row, sku, _offset FROM public.latest ORDER BY n, _row")
    assert [tuple(row.values()) for row in names] == [(1, 0, "z", 2), (1, 2, "c", 0), (2, 0, "d", 1)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_text_with_nul_that_logic_makes_is_a_dead_letter_and_the_other_rows_are_in_the_table(
    make_table_world: Callable[..., TableWorld],
) -> None:
    made = ["* REPLACE (CASE n WHEN 1 THEN name || chr(0) ELSE replace(name, chr(0), '') END AS name)"]
    world = make_table_world(partitions=1, settings={**ONE_SLICE, "transform": [{"select": made}]})
    values = [{"k": k, "n": n, "name": name, "at": "2024-03-01T12:00:00Z"} for k, n, name in NUL]
    world.send(*map(json.dumps, values))
    world.ok("run", "demo")
    [letter] = world.query("SELECT _offset, _reason FROM tidemark_target.dead_letter")
    assert letter["_offset"] == 0
    assert "field name: holds the character NUL" in letter["_reason"]
    assert {row["k"]: row["name"] for row in world.query("SELECT k, name FROM public.latest")} == {2: "cd", 3: "e"}


NUL = ((1, 1, "a"), (2, 2, "c\0d"), (3, 3, "e"))
