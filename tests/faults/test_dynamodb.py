"""Totals in DynamoDB, which are put in several calls: what becomes of an attempt that ends, or pauses, between two."""

import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from sandbox.services.dynamodb import DynamoDB
from sandbox.services.postgres import Postgres
from tests.behaviours.sink_examples import CONNECTION, RANGES, DynamoExample, agree, plan_two_manifests
from tests.faults.attempts_at_once import retried_and_replayed_at_once
from tests.faults.dynamodb_proxy import DynamoProxy
from tests.faults.s3_proxy import Answer, Rule
from tests.sink_faces import holds, put_into
from tests.worlds.dynamo_world import DynamoWorld
from tests.worlds.totals_world import AGGREGATE
from tests.worlds.world import KEYS, wait_stopped, wake
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced
from tidemark.sinks.dynamodb.client import Dynamo

Make = Callable[..., DynamoWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}
RECORDS = 120  # each is a key: three calls
BY_RECORD = {"group_by": ["n"], "values": {"records": "count", "least": "min(n)", "n_sum": "sum(n)"}}


@pytest.fixture
def proxy(dynamodb: DynamoDB) -> Iterator[DynamoProxy]:
    with DynamoProxy(dynamodb.endpoint_url) as opened:
        yield opened


def by_record(make: Make, **settings: Any) -> DynamoWorld:
    """A world with a total for each record, in one manifest."""
    world = make(settings=ONE_MANIFEST, **settings)
    world.settings["sinks"] = [world.entry(aggregate=BY_RECORD)]
    world.write_pipeline()
    world.produce(RECORDS)
    return world


def assert_each_record_once(world: DynamoWorld, expected: range) -> None:
    totals = {item["n"]: (item["_rows"], item["records"], item["least"], item["n_sum"]) for item in world.items()}
    assert totals == {n: (1, 1, n, n) for n in expected}
    assert sorted(item["n"] for item in world.contributions()) == list(expected)
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize(
    ("point", "there"),
    [
        ("publish.mid:kill9", 49),
        pytest.param("publish.mid:kill9@3", RECORDS, marks=pytest.mark.exhaustive),
        pytest.param("publish.before_record:kill9", RECORDS, marks=pytest.mark.exhaustive),
        pytest.param("publish.before_mark:kill9", RECORDS, marks=pytest.mark.exhaustive),
    ],
)
def test_killed_between_calls_the_next_attempt_ends_with_every_key_once(
    make_dynamo_world: Make, point: str, there: int
) -> None:
    """The next one makes other rows: it empties what only the dead one has."""
    world = by_record(make_dynamo_world)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(world.items()) == len(world.contributions()) == there
    [marker] = world.markers()
    whole = point.startswith("publish.before_mark")
    assert (marker["putting"], marker.get("attempt")) == (1, 1 if whole else None)
    world.settings["transform"] = [{"filter": "n >= 30"}]
    world.write_pipeline()
    world.ok("retry", "demo")
    assert_each_record_once(world, range(0 if whole else 30, RECORDS))
    world.ok("replay", "demo", "--manifest", "1")
    assert_each_record_once(world, range(30, RECORDS))
    assert world.staging() == []


@pytest.mark.parametrize(
    "point", ["publish.mid:stop", pytest.param("publish.before_record:stop", marks=pytest.mark.exhaustive)]
)
def test_an_attempt_that_wakes_between_calls_changes_nothing(make_dynamo_world: Make, point: str) -> None:
    world = by_record(make_dynamo_world)
    paused = world.start("run", "demo", "--run-key", "one", failpoint=point)
    wait_stopped(paused)
    world.settings["transform"] = [{"filter": "n >= 30"}]
    world.write_pipeline()
    world.ok("replay", "demo", "--run-key", "one", "--take-over")
    before = world.items(), world.contributions()
    woken = wake(paused)
    assert "Traceback" not in woken.stderr
    assert (world.items(), world.contributions()) == before, "I21 attempts grow"
    assert_each_record_once(world, range(30, RECORDS))


def test_a_replay_that_ended_half_way_is_named_and_the_next_one_puts_it_in_order(make_dynamo_world: Make) -> None:
    world = by_record(make_dynamo_world)
    world.ok("run", "demo", "--run-key", "one")
    world.settings["transform"] = [{"filter": "n >= 30"}]
    world.write_pipeline()
    killed = world.tidemark("replay", "demo", "--manifest", "1", failpoint="publish.mid:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    audit = world.here("audit", "demo")
    assert (audit.exit_code, "attempt 2 has replaced some of its contributions" in audit.stdout) == (1, True)
    world.ok("replay", "demo", "--manifest", "1")
    assert_each_record_once(world, range(30, RECORDS))


def test_a_number_that_a_restored_database_gives_out_again_hides_no_keys_of_the_attempt_that_had_it(
    make_dynamo_world: Make, postgres: Postgres
) -> None:
    """The database goes back to before the attempt that died: the next one of its number is refused, the one after it
    empties the keys that only the dead one has."""
    world = by_record(make_dynamo_world)
    world.ok("plan", "demo", "--run-key", "one")
    with postgres.temporary_database("restored", world.dsn.rpartition("/")[2]) as restored:
        killed = world.tidemark("run", "demo", "--run-key", "one", failpoint="publish.mid:kill9")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert {item["_attempt"] for item in world.contributions()} == {1}
        world.dsn = restored
        world.settings["transform"] = [{"filter": "n >= 30"}]
        world.write_pipeline()
        fenced = world.here("run", "demo", "--run-key", "one")
        assert fenced.exit_code == 1
        assert "another attempt of this number has put other contributions" in fenced.stderr
        world.ok("retry", "demo")
        assert_each_record_once(world, range(30, RECORDS))


@pytest.mark.parametrize(
    ("totals", "contributions", "halves"),
    [
        *((*moments, (half,)) for moments in ((1, 1), (3, 1), (1, 3)) for half in (False, True)),
        *(
            pytest.param(*moments, (False, True), marks=pytest.mark.exhaustive)
            for moments in ((3, 2), (2, 3), (1, 2), (2, 1), (0, 3), (0, 2))
        ),
    ],
)
def test_tables_restored_each_from_its_own_moment_are_noticed_and_end_right_in_any_order_of_the_replays(
    make_dynamo_world: Make, totals: int, contributions: int, halves: tuple[bool, ...]
) -> None:
    """The moments are after so many manifests, 0: nothing was there yet. With ``half``, which is drawn, the third was
    killed when it had put 49 of its keys. Recovery in AWS is by table, and a table that it makes is another one."""
    half = secrets.choice(halves)
    world = make_dynamo_world(settings=ONE_MANIFEST)
    world.settings["sinks"] = [world.entry(aggregate=BY_RECORD if half else AGGREGATE)]
    world.write_pipeline()
    tables = world.items_table, f"{world.items_table}_contributions"
    moments: list[dict[str, list[dict[str, Any]]]] = [{table: [] for table in tables}]
    for number in (1, 2, 3):
        world.produce(RECORDS if half else 30)
        if half and number == 3:
            killed = world.tidemark("run", "demo", "--run-key", "3", failpoint="publish.mid:kill9")
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        else:
            world.ok("run", "demo", "--run-key", str(number))
        moments.append({table: world.client.scan(TableName=table)["Items"] for table in tables})
    restore(world, tables[0], moments[totals][tables[0]])
    restore(world, tables[1], moments[contributions][tables[1]])
    for words in (("plan", "demo"), ("replay", "demo", "--manifest", "1"), ("repair", "demo", "--why", "a test")):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert "is another one than this database has published to" in refused.stderr
    assert world.here("audit", "demo").exit_code == 1
    lines = world.ok("db", "adopt", "demo", "--why", "restored").splitlines()
    steps = [line.partition("next: tidemark ")[2].split() for line in lines if "next: tidemark replay" in line]
    done = 2 if half else 3
    assert [int(step[-1]) for step in steps] == list(range(contributions + 1, done + 1))
    for step in reversed(steps):
        world.ok(*step)
    if half:
        world.ok("retry", "demo")
        assert_each_record_once(world, range(3 * RECORDS))
    else:
        world.assert_complete()
    world.produce(30)
    world.ok("run", "demo", "--run-key", "4")
    assert world.ok("audit", "demo", "--deep") == ""


def restore(world: DynamoWorld, table: str, items: list[dict[str, Any]]) -> None:
    """Give a table the items that it had before, and no others."""
    described = world.client.describe_table(TableName=table)["Table"]
    world.client.delete_table(TableName=table)
    world.client.create_table(
        TableName=table, BillingMode="PAY_PER_REQUEST",
        **{name: described[name] for name in ("AttributeDefinitions", "KeySchema")},
    )  # fmt: skip
    for item in items:
        world.client.put_item(TableName=table, Item=item)


@pytest.mark.parametrize("question", range(1, 5))
def test_a_call_that_comes_after_the_intent_of_a_newer_attempt_changes_nothing(
    database: str, dynamodb: DynamoDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: int
) -> None:
    """The database says that the attempt is the newest, then a newer one does everything, then the call comes."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", dynamodb.connection())
    with ManifestDatabase(database, "test") as manifests:
        plan_two_manifests(manifests)
        example = DynamoExample(tmp_path, manifests, dynamodb.connection())
        slow, newer = example.stage(1, also="slow"), example.stage(2, also="newer")
        asked = 0

        def fence() -> None:
            nonlocal asked
            asked += 1
            if asked == question:
                put_into(example.open(), newer, RANGES, manifests.id(), agree, agree)

        with pytest.raises(Fenced, match="attempt 2 has begun to put its contributions"):
            put_into(example.sink, slow, RANGES, manifests.id(), fence, agree)
        assert {also for _, also in example.seen().values()} == {"newer"}
        assert holds(example.sink, newer)


def by_k(make: Make) -> DynamoWorld:
    """A world with totals that all manifests share, and the first manifest published."""
    world = make(settings=ONE_MANIFEST)
    values = {"records": "count", "n_sum": "sum(n)", "least": "min(n)"}
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["k"], "values": values})]
    world.write_pipeline()
    world.produce(36)
    world.ok("run", "demo", "--run-key", "one")
    world.settings["transform"] = [{"filter": "n >= 9"}]  # a replay replaces what the first has contributed
    world.write_pipeline()
    world.produce(36)
    return world


def assert_counts(world: DynamoWorld, numbers: range) -> None:
    sums = {k: [n for n in numbers if n % KEYS == k] for k in range(KEYS)}
    totals = {item["k"]: (item["records"], item["n_sum"], item["least"]) for item in world.items()}
    assert totals == {k: (len(members), sum(members), min(members)) for k, members in sums.items()}


def test_a_total_is_combined_with_what_a_transaction_that_is_being_committed_has_put_into_it(
    make_dynamo_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS: who reads several items while a transaction commits may see some of them before it and some after it. Here
    the totals are shown with what manifest 2 has put, and queries do not show its contributions yet."""
    world = by_k(make_dynamo_world)
    killed = world.tidemark("run", "demo", "--run-key", "two", failpoint="publish.mid:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert_counts(world, range(72))
    query = Dynamo.query

    def before_the_transaction(self: Dynamo, *arguments: Any) -> Iterator[dict[str, Any]]:
        for item in query(self, *arguments):
            if "_attempt" not in item or item["_manifest_id"]["N"] != "2":
                yield item

    with monkeypatch.context() as patched:
        patched.setattr(Dynamo, "query", before_the_transaction)
        world.ok("replay", "demo", "--manifest", "1")
    assert_counts(world, range(9, 72))
    world.ok("retry", "demo")
    assert_counts(world, range(9, 72))
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("first", ["transaction", "query"])
def test_a_transaction_between_the_reads_of_a_total_and_of_what_it_is_made_of_changes_the_total_and_is_seen(
    make_dynamo_world: Make, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    world = by_k(make_dynamo_world)
    query, ran = Dynamo.query, []

    def beside_another(self: Dynamo, table: str, condition: str, values: Any, *more: Any) -> Iterator[dict[str, Any]]:
        items = list(query(self, table, condition, values, *more)) if first == "query" else None
        if values[":key"]["S"].startswith("[") and not ran:
            ran.append(world.tidemark("run", "demo", "--run-key", "two"))
        yield from query(self, table, condition, values, *more) if items is None else items

    with monkeypatch.context() as patched:
        patched.setattr(Dynamo, "query", beside_another)
        world.ok("replay", "demo", "--manifest", "1")
    assert [done.returncode for done in ran] == [0], ran[0].stderr
    assert_counts(world, range(9, 72))
    assert world.ok("audit", "demo", "--deep") == ""


CALLS = ((0,), (1, 2, 3, 4), (5,), (6,), (7, 8, 9), (10,), (11,))


@pytest.mark.parametrize("answer", [Answer.LOST, pytest.param(Answer.CUT_BEFORE, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(calls, marks=() if calls == (6,) else pytest.mark.exhaustive, id="-".join(map(str, calls)))
        for calls in CALLS
    ],
)
def test_a_call_that_is_lost_or_whose_answer_is_lost_is_done_once(
    make_dynamo_world: Make, proxy: DynamoProxy, answer: Answer, calls: tuple[int, ...]
) -> None:
    """Owner, four notes, list of keys, intent, three calls of 49 keys, the end: each is lost three times; of those that
    are alike another one in each run."""
    skip = secrets.choice(calls)
    world = by_record(make_dynamo_world, endpoint_url=proxy.endpoint_url)
    rule = proxy.arm(Rule(answer, having="TransactWriteItems", skip=skip))
    world.ok("run", "demo", "--run-key", "one")
    assert rule.struck == (3 if skip < 11 else 0)
    assert_each_record_once(world, range(RECORDS))


def test_what_was_put_half_is_taken_out_when_a_person_gives_the_manifest_up(
    make_dynamo_world: Make, proxy: DynamoProxy
) -> None:
    """The lake has the manifest, the totals have 49 of its 120 keys, and Kafka has lost the records."""
    world = by_record(make_dynamo_world, endpoint_url=proxy.endpoint_url)
    world.settings["sinks"].append(world.lake_entry())
    world.write_pipeline()
    proxy.arm(Rule(Answer.REFUSED, having="TransactWriteItems", skip=8, times=-1, status=400, code="AccessDenied"))
    failed = world.here("run", "demo", "--run-key", "one")
    assert failed.exit_code == 1
    assert len(world.items()) == len(world.contributions()) == 49
    proxy.disarm()
    [manifest] = world.manifests()
    gone = [TopicPartition(world.topic, part["partition"], part["end"]) for part in manifest["ranges"]]
    world.administer("delete_records", gone)
    assert "tidemark accept damage demo --manifest 1 --why TEXT" in world.here("retry", "demo").stderr
    accept = ("accept", "damage", "demo", "--manifest", "1", "--why", "too late")
    world.ok(*accept, "--dry-run")
    assert len(world.contributions()) == 49
    killed = world.tidemark(*accept, failpoint="publish.mid:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.ok(*accept)
    assert (world.items(), world.contributions(), world.markers()) == ([], [], [])
    world.ok("retry", "demo")
    assert world.ok("audit", "demo", "--deep") == ""
    assert {manifest["state"] for manifest in world.manifests()} == {"done"}
    world.produce(20)
    world.ok("run", "demo")
    assert sorted(item["n"] for item in world.items()) == list(range(RECORDS, RECORDS + 20))


@pytest.mark.exhaustive  # PostgreSQL is asked the same in `make test`
def test_manifests_that_change_the_same_totals_at_once_miss_nothing_of_each_other(make_dynamo_world: Make) -> None:
    world = make_dynamo_world()
    world.produce(120)
    assert retried_and_replayed_at_once(world) > 2
    world.assert_complete()
