"""Totals with a copy in DynamoDB by the command line: what readers find there, what is refused, what an audit says."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import boto3
import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.dynamodb import DynamoDB
from tests.faults.dynamodb_proxy import DynamoProxy
from tests.faults.s3_proxy import Answer, Rule
from tests.worlds.dynamo_world import DynamoWorld, items_of
from tests.worlds.secret_search import Canaries
from tidemark.errors import SinkRefused
from tidemark.lifecycle.attempt import order_of
from tidemark.providers.dynamodb.client import RIGHT_TO_CREATE, RIGHTS
from tidemark.providers.dynamodb.copy import DynamoCopy, open_copy
from tidemark.providers.dynamodb.settings import Settings
from tidemark.providers.postgres.totals.copies import Total

Make = Callable[..., DynamoWorld]
WHY = ("--why", "a test")
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}


@pytest.fixture
def world(make_dynamo_world: Make) -> DynamoWorld:
    """Two manifests published."""
    made = make_dynamo_world()
    made.produce(60, bad_every=13)
    made.ok("run", "demo", "--run-key", "one")
    return made


def test_a_run_counts_every_record_once_and_people_can_ask_for_it(world: DynamoWorld) -> None:
    world.assert_complete()
    assert "tables, keys and rights are what an attempt needs" in world.here("doctor", "demo").stdout
    world.produce(30)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()
    world.lose_manifest_database()
    refused = world.here("run", "demo", "--run-key", "three")
    assert (refused.exit_code, "belongs to another manifest database" in refused.stderr) == (1, True)
    assert world.json("db", "adopt", "demo", *WHY)["manifests"] == [1, 2, 3]
    world.assert_complete()


def test_the_example_counts_what_it_says(make_dynamo_world: Make) -> None:
    world = make_dynamo_world(partitions=1)
    world.targets["aws_default"] = world.targets.pop("dynamodb")
    example = (CHECKOUT / "include" / "pipelines" / "examples" / "orders_to_dynamodb.yaml").read_text()
    world.items_table = f"orders{world.topic}"
    for old, new in (
        ("connection: kafka_default", f'bootstrap_servers: "{world.broker.bootstrap_servers}"'),
        ("topics: [orders]", f"topics: [{world.topic}]"),
        ("        table: orders_per_product", f"        table: {world.items_table}"),
        ("root: lake/orders", f"root: {world.lake}"),
    ):
        assert example.count(old) == 1
        example = example.replace(old, new)
    (world.pipelines / "demo.yaml").write_text(example)
    orders = [
        {"product_id": number % 2, "price": number + 0.5, "ordered_at": "2024-03-01T10:20:00Z"} for number in range(5)
    ]
    world.send(*map(json.dumps, orders), "{")
    world.ok("run", "orders_to_dynamodb")
    told = {item["product_id"]: (item["orders"], item["revenue"], item["highest"]) for item in world.items()}
    assert told == {0: (3, Decimal("7.5"), Decimal("4.5")), 1: (2, Decimal(5), Decimal("3.5"))}
    assert world.ok("audit", "orders_to_dynamodb", "--deep") == ""


def test_a_replay_with_other_code_replaces_what_the_manifest_contributed(make_dynamo_world: Make) -> None:
    """Also a key that it no longer contributes to: its item has no records."""
    world = make_dynamo_world()
    world.produce(60)
    world.ok("run", "demo")
    everything = world.rows()
    world.settings["transform"] = [{"filter": "n >= 9 AND k <> 3"}]
    world.write_pipeline()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    fewer = world.rows()
    assert {k for k, _ in fewer} == {0, 1, 2, 4, 5, 6, 7, 8}
    assert sum(row[0] for row in fewer.values()) == sum(1 for n in range(9, 60) if n % 9 != 3)
    assert world.ok("audit", "demo", "--deep") == ""
    del world.settings["transform"]
    world.write_pipeline()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert world.rows() == everything
    world.assert_complete()


@pytest.mark.parametrize("how", ["change", "take_away", "stray"])
def test_an_item_that_is_not_its_total_is_named_and_a_replay_puts_it_again(world: DynamoWorld, how: str) -> None:
    """An item without a total is left to a person."""
    item = world.items()[0]
    stray = {"_key": {"S": "[77]"}, "k": {"N": "77"}, "_rows": {"N": "1"}, "_revision": {"N": "1"}}
    if how == "stray":
        world.client.put_item(TableName=world.items_table, Item=stray)
    else:
        getattr(world, how)(item, *(("n_sum", "-5") if how == "change" else ()))
    audit = world.here("audit", "demo", "--deep")
    assert audit.exit_code == 1
    if how == "stray":
        assert f"1 item of connection dynamodb, DynamoDB table {world.items_table} have no total" in audit.stdout
        assert "delete those items by hand" in audit.stdout
        world.client.delete_item(TableName=world.items_table, Key={"_key": stray["_key"]})
    else:
        assert f"1 item of connection dynamodb, DynamoDB table {world.items_table} are not the totals" in audit.stdout
        [command] = [line.split("next: ")[1].split(", such as")[0].strip() for line in audit.stdout.splitlines()
                     if "next: tidemark replay" in line]  # fmt: skip
        world.ok(*command.split()[1:])
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def put_back(world: DynamoWorld, items: list[dict[str, Any]]) -> None:
    """Restore the table of DynamoDB, which makes another table."""
    described = world.client.describe_table(TableName=world.items_table)["Table"]
    world.client.delete_table(TableName=world.items_table)
    world.client.create_table(
        TableName=world.items_table, BillingMode="PAY_PER_REQUEST",
        **{name: described[name] for name in ("AttributeDefinitions", "KeySchema")},
    )  # fmt: skip
    for item in items:
        world.client.put_item(TableName=world.items_table, Item=item)


def raw_items(world: DynamoWorld) -> list[dict[str, Any]]:
    pages = world.client.get_paginator("scan").paginate(TableName=world.items_table)
    return [item for page in pages for item in page["Items"]]


@pytest.mark.parametrize("how", ["older", "newer", "empty", "dropped"])
def test_a_table_in_the_place_of_the_copy_is_noticed_and_filled_again(world: DynamoWorld, how: str) -> None:
    """Restored from a backup, which may be newer than the totals, created again empty, or not there."""
    items = raw_items(world)
    if how == "older":
        items = items[::3] + [item for item in items if item["_key"]["S"] == "owner"]
    if how == "newer":
        items.append({"_key": {"S": "[77]"}, "k": {"N": "77"}, "_rows": {"N": "1"}, "_revision": {"N": "1000001"}})
        for item in items[::2]:
            if "_revision" in item:
                item |= {"_revision": {"N": "1000000"}, "n_sum": {"N": "-1"}}
    put_back(world, [] if how in ("empty", "dropped") else items)
    if how == "dropped":
        world.client.delete_table(TableName=world.items_table)
    world.produce(30)
    assert "is another one than this database has published to" in world.here("run", "demo", "--run-key", "two").stderr
    assert f"DynamoDB table {world.items_table}: " in world.ok("db", "adopt", "demo", *WHY)
    assert world.rows() == world.latest(world.spans({1, 2}))
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


TABLES = (
    "public.totals", "public.totals_contributions", "tidemark_target.owner", "tidemark_target.marker",
    "tidemark_target.dead_letter",
)  # fmt: skip


def test_after_a_restore_of_postgresql_no_item_of_the_time_before_hides_a_total(world: DynamoWorld) -> None:
    """Its sequence goes back, so revisions that DynamoDB has already would be given out again."""
    world.execute("CREATE SCHEMA copied")
    for table in TABLES:
        world.execute(f"CREATE TABLE copied.{table.rpartition('.')[2]} AS TABLE {table}")
    [before] = world.query("SELECT last_value FROM tidemark_target.revision")
    world.produce(60)
    world.ok("run", "demo", "--run-key", "two")
    world.settings["transform"] = [{"filter": "k <> 3"}]
    world.write_pipeline()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    late = raw_items(world)
    del world.settings["transform"]
    world.write_pipeline()
    for table in TABLES:
        triggers = f"ALTER TABLE {table} {{}} TRIGGER USER;"
        world.execute(f"{triggers.format('DISABLE')} DELETE FROM {table}; INSERT INTO {table} SELECT * FROM "
                      f"copied.{table.rpartition('.')[2]}; {triggers.format('ENABLE')}")  # fmt: skip
    world.execute(f"SELECT setval('tidemark_target.revision', {before['last_value']})")
    assert "went back" in world.here("run", "demo", "--run-key", "three").stderr
    told = world.ok("db", "adopt", "demo", *WHY)
    assert f"DynamoDB table {world.items_table}: " in told
    assert "manifest 3 is published and not in connection warehouse, table public.totals" in told
    # What a process of the time before still puts is older than all that comes now.
    copy_of(world).put([total_of(item) for item in late if "_rows" in item and "k" in item])
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.produce(30)
    world.ok("run", "demo", "--run-key", "three")
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def total_of(item: dict[str, Any]) -> Total:
    """A total with the key of an item, some other value, and a revision somewhat above its own."""
    window = item["window_start"]["S"]
    key = {"k": int(item["k"]["N"]), "window_start": window}
    return Total(key, {"n_sum": -1}, 1, int(item["_revision"]["N"]) + 500)


def test_a_copy_that_was_left_out_for_a_while_is_right_when_it_is_back(world: DynamoWorld) -> None:
    """Also a key that lost its records meanwhile: its total stays, with no rows, until the copy knows."""
    [[_, entry]] = world.settings["sinks"][0].items()
    world.settings["sinks"] = [{"totals": {key: value for key, value in entry.items() if key != "served_in"}}]
    world.settings["transform"] = [{"filter": "k <> 3"}]
    world.write_pipeline()
    before = world.items()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.produce(30)
    world.ok("run", "demo", "--run-key", "two")
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.items() == before
    world.settings["sinks"] = [{"totals": entry}]
    world.write_pipeline()
    world.produce(1)
    world.ok("run", "demo", "--run-key", "three")
    assert 3 not in {k for k, _ in world.rows()}
    assert world.ok("audit", "demo", "--deep") == ""
    del world.settings["transform"]
    world.write_pipeline()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.assert_complete()


def test_totals_that_were_there_before_their_copy_are_all_put(make_dynamo_world: Make) -> None:
    world = make_dynamo_world()
    [[_, entry]] = world.settings["sinks"][0].items()
    world.settings["sinks"] = [{"totals": {key: value for key, value in entry.items() if key != "served_in"}}]
    world.write_pipeline()
    world.produce(60)
    world.ok("run", "demo", "--run-key", "one")
    assert world.items() == []
    world.settings["sinks"] = [{"totals": entry}]
    world.write_pipeline()
    world.produce(1)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()


def test_a_total_that_dynamodb_does_not_keep_is_refused_before_it_counts(make_dynamo_world: Make) -> None:
    world = make_dynamo_world(partitions=1, settings=ONE_MANIFEST)
    world.settings["decode"]["schema"] = "at TIMESTAMP NOT NULL, k BIGINT NOT NULL, n DECIMAL(38,20)"
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["k"], "values": {"n_sum": "sum(n)"}})]
    world.write_pipeline()
    at = "2024-03-01T10:00:00Z"
    numbers = ("999999999999999999.00000000000000000001", "1")
    world.send(*(f'{{"n": {number}, "k": 1, "at": "{at}"}}' for number in numbers))
    failed = world.here("run", "demo", "--run-key", "one")
    assert failed.exit_code == 1
    assert "n_sum of a total has more than the 38 digits that DynamoDB keeps" in failed.stderr
    assert world.items() == []
    assert world.query("SELECT FROM public.totals") == []
    world.settings["transform"] = [{"filter": "n > 1"}]
    world.write_pipeline()
    world.ok("retry", "demo")
    assert [item["n_sum"] for item in world.items()] == [Decimal(numbers[0])]


BY_TEXT = {"group_by": ["name", "k"], "values": {"records": "count"}}
AT = "2024-03-01T10:00:00Z"


def by_text(make: Make, **settings: Any) -> DynamoWorld:
    world = make(partitions=1, settings=ONE_MANIFEST)
    world.settings["decode"]["schema"] = "at TIMESTAMP NOT NULL, k BIGINT NOT NULL, name STRING NOT NULL"
    world.settings |= settings
    world.settings["sinks"] = [world.entry(aggregate=BY_TEXT)]
    world.write_pipeline()
    return world


def test_a_record_whose_key_is_too_long_for_dynamodb_is_a_dead_letter(make_dynamo_world: Make) -> None:
    """Quotes and control characters take more bytes in the text of a key; all that fits is counted."""
    world = by_text(make_dynamo_world)
    names = ["x" * 1_980, "x" * 2_050, "\x01" * 320, "\x01" * 350, "é" * 980, "é" * 1_020]
    world.send(*(json.dumps({"name": name, "k": 1, "at": AT}) for name in names))
    world.ok("run", "demo")
    assert {item["name"] for item in world.items()} == {names[0], names[2], names[4]}
    assert world.json("dead-letters", "demo")["count"] == 3
    reasons = [row["_reason"] for row in world.query("SELECT DISTINCT _reason FROM tidemark_target.dead_letter")]
    assert reasons == ["its key (name, k) has more bytes than the 2048 of sink totals"]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_key_that_is_too_long_fails_the_manifest_with_its_place_where_the_file_says_so(
    make_dynamo_world: Make,
) -> None:
    world = by_text(make_dynamo_world, on_error="fail")
    world.send(*(json.dumps({"name": name, "k": 1, "at": AT}) for name in ("short", "x" * 2_050)))
    failed = world.here("run", "demo")
    assert failed.exit_code == 1
    assert "its key (name, k) has more bytes than" in failed.stderr
    assert f"topic={world.topic}" in failed.stderr
    assert "offset=1" in failed.stderr
    assert world.items() == []


def test_a_key_from_before_the_copy_that_is_too_long_is_refused_before_commit(make_dynamo_world: Make) -> None:
    world = by_text(make_dynamo_world)
    [[_, entry]] = world.settings["sinks"][0].items()
    world.settings["sinks"] = [{"totals": {key: value for key, value in entry.items() if key != "served_in"}}]
    world.write_pipeline()
    world.send(json.dumps({"name": "x" * 2_050, "k": 1, "at": AT}))
    world.ok("run", "demo", "--run-key", "one")
    world.settings["sinks"] = [{"totals": entry}]
    world.write_pipeline()
    world.send(json.dumps({"name": "short", "k": 1, "at": AT}))
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "the key of a total has 2,057 bytes, and DynamoDB takes 2,048" in refused.stderr
    assert [row["name"] for row in world.query("SELECT name FROM public.totals")] == ["x" * 2_050]
    world.execute("DELETE FROM public.totals; DELETE FROM public.totals_contributions")
    world.ok("retry", "demo")
    assert [item["name"] for item in world.items()] == ["short"]


KEY = [{"AttributeName": "_key", "KeyType": "HASH"}]


def create_table(world: DynamoWorld, *keys: tuple[str, str]) -> None:
    names = [{"AttributeName": name, "KeyType": role} for (name, _), role in zip(keys, ("HASH", "RANGE"), strict=False)]
    world.client.create_table(
        TableName=world.items_table, KeySchema=names, BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in keys],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"k": {"N": "1"}, "_rows": {"N": "1"}, "_revision": {"S": "5b0c"}}, "has totals of release 0.3 or older"),
        ({"k": {"N": "1"}}, "has items, and nothing says which totals they are a copy of"),
    ],
    ids=["of 0.3", "of others"],
)
def test_a_table_with_items_of_something_else_is_refused_before_anything_changes(
    make_dynamo_world: Make, item: dict[str, Any], message: str
) -> None:
    world = make_dynamo_world()
    create_table(world, ("_key", "S"))
    world.client.put_item(TableName=world.items_table, Item={"_key": {"S": "[1]"}, **item})
    before = raw_items(world)
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"table {world.items_table} in DynamoDB {message}" in refused.stderr
    assert "give served_in.dynamodb another table, or delete" in refused.stderr
    assert message in world.here("doctor", "demo").stdout
    assert raw_items(world) == before
    assert world.query("SELECT FROM pg_class WHERE starts_with(relname, 'totals')") == []
    assert world.query("SELECT FROM pg_namespace WHERE nspname = 'tidemark_target'") == []
    world.client.delete_table(TableName=world.items_table)
    world.ok("run", "demo")
    world.assert_complete()


@pytest.mark.parametrize("keys", [(("id", "N"),), (("_key", "B"),), (("_key", "S"), ("_manifest_id", "N"))], ids=str)
def test_a_table_with_other_keys_is_refused(make_dynamo_world: Make, keys: tuple[tuple[str, str], ...]) -> None:
    world = make_dynamo_world()
    create_table(world, *keys)
    world.produce(20)
    refused = world.here("run", "demo")
    named = ", ".join(f"{name} ({kind})" for name, kind in keys)
    assert refused.exit_code == 1
    assert f"has the keys {named}, and a copy of totals needs _key (S)" in refused.stderr
    assert world.query("SELECT FROM pg_class WHERE starts_with(relname, 'totals')") == []


def test_a_table_that_nobody_may_create_is_named_with_the_command_that_does(make_dynamo_world: Make) -> None:
    world = make_dynamo_world()
    [[_, entry]] = world.settings["sinks"][0].items()
    entry["served_in"]["dynamodb"]["auto_create"] = False
    world.write_pipeline()
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    command = f"aws dynamodb create-table --table-name {world.items_table} --billing-mode PAY_PER_REQUEST"
    assert command in refused.stderr
    create_table(world, ("_key", "S"))
    world.ok("run", "demo")
    world.assert_complete()


def test_one_table_has_the_copy_of_one_sink(world: DynamoWorld) -> None:
    with pytest.raises(SinkRefused, match="has the copy of other totals"):
        copy_of(world).claim("another table of totals")
    [[_, entry]] = world.settings["sinks"][0].items()
    world.settings["sinks"].append({"totals": {**entry, "name": "others", "table": "others"}})
    world.write_pipeline()
    refused = world.here("validate", "demo")
    assert 'shares its target with the sink "totals"' in refused.stdout + refused.stderr
    world.settings["sinks"] = [{"totals": {**entry, "name": "others", "table": "others"}}]
    world.write_pipeline()
    world.ok("retire", "sink", "demo", "totals", *WHY)
    before = raw_items(world)
    refused = world.here("fill", "demo", "others", *WHY)
    assert refused.exit_code == 1
    assert "has the copy of other totals" in refused.stdout + refused.stderr
    assert raw_items(world) == before


def test_an_older_revision_never_replaces_a_newer_one(world: DynamoWorld) -> None:
    before = raw_items(world)
    item = next(item for item in before if "_revision" in item)
    revision = int(item["_revision"]["N"])
    for late in (revision - 1, revision):
        total = Total({"k": int(item["k"]["N"]), "window_start": item["window_start"]["S"]}, {"n_sum": -1}, 1, late)
        assert copy_of(world).key_of(total) == item["_key"]["S"]
        copy_of(world).put([total])
    assert raw_items(world) == before, "I21 revisions grow"


@pytest.mark.parametrize("session", ["America/New_York", "UTC"])
def test_the_key_of_a_total_does_not_depend_on_the_zone_of_the_session(make_dynamo_world: Make, session: str) -> None:
    world = make_dynamo_world(settings=ONE_MANIFEST)
    [database] = world.query("SELECT current_database() AS name")
    world.execute(f"ALTER DATABASE \"{database['name']}\" SET timezone TO '{session}'")
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    keys = {item["_key"]["S"] for item in raw_items(world)} - {"owner"}
    assert all(key.endswith(':00:00Z"]') for key in keys), keys


def test_a_renamed_sink_and_a_renamed_pipeline_go_on_with_their_copy(world: DynamoWorld) -> None:
    [[_, entry]] = world.settings["sinks"][0].items()
    world.settings["sinks"] = [{"totals": {**entry, "name": "sums"}}]
    world.write_pipeline()
    world.ok("rename", "sink", "demo", "totals", "sums", *WHY)
    (world.pipelines / "demo.yaml").unlink()
    world.name = "orders"
    world.write_pipeline()
    world.ok("rename", "pipeline", "demo", "orders", *WHY)
    world.produce(30)
    world.ok("run", "orders", "--run-key", "two")
    assert world.rows() == world.latest(world.everything())
    assert world.ok("audit", "orders", "--deep") == ""


@pytest.mark.parametrize("words", [("retry", "demo"), ("run", "demo", "--run-key", "two")], ids=str)
def test_a_replay_that_died_before_its_totals_were_in_the_copy_is_marked_only_with_them(
    world: DynamoWorld, words: tuple[str, ...], dynamodb: DynamoDB
) -> None:
    """Whichever command finds that only the mark is missing."""
    world.settings["transform"] = [{"filter": "k <> 3"}]
    world.write_pipeline()
    with DynamoProxy(dynamodb.endpoint_url) as proxy:
        straight = world.targets["dynamodb"]
        world.targets["dynamodb"] = dynamodb.connection(proxy.endpoint_url)
        proxy.arm(Rule(Answer.REFUSED, having="PutItem", skip=1, times=-1, status=400, code="AccessDeniedException"))
        failed = world.here("replay", "demo", "--manifest", "1")
        assert (failed.exit_code, "PutItem and Scan" in failed.stderr or "PutItem, Scan" in failed.stderr) == (1, True)
        world.targets["dynamodb"] = straight
    world.ok(*words)
    assert {row["id"]: row for row in world.manifests()}[1]["published_attempt"] == 2
    assert world.query("SELECT FROM public.totals WHERE _served IS DISTINCT FROM _revision") == []
    assert world.ok("audit", "demo", "--deep") == ""


class Recorded(DynamoProxy):
    """Notes which operations were asked for."""

    def __init__(self, service_url: str) -> None:
        self.operations: set[str] = set()
        super().__init__(service_url)

    def struck(self, method: str, path: str, headers: Any) -> Rule | None:
        self.operations.add(headers.get("X-Amz-Target", "").rpartition(".")[2])
        return super().struck(method, path, headers)


@pytest.fixture
def recorded(dynamodb: DynamoDB) -> Iterator[Recorded]:
    with Recorded(dynamodb.endpoint_url) as proxy:
        yield proxy


def test_the_rights_that_are_documented_are_those_that_are_used(make_dynamo_world: Make, recorded: Recorded) -> None:
    world = make_dynamo_world(endpoint_url=recorded.endpoint_url)
    world.produce(40)
    world.ok("run", "demo")
    first = world.manifests()[0]["id"]
    world.ok("replay", "demo", "--manifest", str(first))
    world.ok("audit", "demo", "--deep")
    world.here("doctor", "demo")
    assert recorded.operations == {*RIGHTS, RIGHT_TO_CREATE}
    page = (CHECKOUT / "docs" / "providers" / "dynamodb.md").read_text()
    listed = "`, `".join(RIGHTS[:-1])
    assert f"`dynamodb:{listed}` and `{RIGHTS[-1]}`" in " ".join(page.split())
    recorded.operations.clear()
    put_back(world, [])
    world.ok("db", "adopt", "demo", *WHY)
    assert recorded.operations <= {*RIGHTS, RIGHT_TO_CREATE}


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("AccessDeniedException", 400, "give these keys dynamodb:DescribeTable, GetItem, BatchGetItem, PutItem, Scan"),
        ("ProvisionedThroughputExceededException", 400, "DynamoDB is busy: wait, raise the capacity of the table"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                ("UnrecognizedClientException", 400, "check the keys of the connection"),
                ("InternalServerError", 500, "DynamoDB is busy: wait"),
                ("ValidationException", 400, "what was put stays, and is not put twice"),
            )
        ),
    ],
)
def test_what_dynamodb_refuses_is_said_with_what_to_do_and_busy_calls_are_made_again(
    make_dynamo_world: Make, recorded: Recorded, code: str, status: int, message: str
) -> None:
    world = make_dynamo_world(endpoint_url=recorded.endpoint_url, settings=ONE_MANIFEST)
    world.produce(30)
    recorded.arm(Rule(Answer.REFUSED, having="PutItem", times=2, skip=3, status=status, code=code))
    done = world.here("run", "demo", "--run-key", "one")
    assert done.exit_code == (0 if "busy" in message else 1), done.stderr
    if "busy" not in message:
        assert message in done.stderr
        recorded.disarm()
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", "one")
    world.assert_complete()


def test_keys_of_the_connection_are_nowhere_after_runs_that_succeed_and_fail(
    make_dynamo_world: Make, dynamodb: DynamoDB
) -> None:
    world = make_dynamo_world()
    keys = {"login": f"AKIA{uuid4().hex}", "password": f"secret{uuid4().hex}"}
    canaries = Canaries(keys)
    world.targets["dynamodb"] = json.dumps({**json.loads(dynamodb.connection()), **keys})
    world.produce(60, bad_every=13)
    outputs = [world.here("run", "demo")]
    world.produce(20)
    outputs += [world.here("plan", "demo")]
    mine: Any = boto3.Session(aws_access_key_id=keys["login"], aws_secret_access_key=keys["password"])
    world.client = mine.client("dynamodb", endpoint_url=dynamodb.endpoint_url, region_name="us-east-1")
    assert len(items_of(world.client, world.items_table)) > 0, "the emulator has a database for each key id"
    world.client.delete_table(TableName=world.items_table)
    create_table(world, ("id", "N"))
    outputs += [world.here(word, "demo") for word in ("retry", "run", "doctor", "audit", "status", "history")]
    assert [done.exit_code for done in outputs[:4]] == [0, 0, 1, 1]
    assert "has the keys id (N)" in outputs[2].stderr
    for done in (*outputs, world.here("show", "3", "--json")):
        canaries.look("an output", done.output)
    for manifest in world.context().database.manifests.find("demo"):
        canaries.look("an order", order_of(world.context(), manifest, 1).to_json())
    assert ".yaml" in {file.suffix for file in canaries.look_at_files(world.folder)}
    assert "tidemark.event" in set(canaries.look_at_database(world.dsn))
    canaries.look_at_database(world.targets["warehouse"])
    assert canaries.leaks == []


def copy_of(world: DynamoWorld) -> DynamoCopy:
    settings = Settings(table=world.items_table, connection="dynamodb")
    return open_copy(settings, lambda _: json.loads(world.targets["dynamodb"]), {})
