"""Totals in DynamoDB by the command line: what they count, what they refuse, and what people ask of them."""

import json
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from itertools import permutations
from typing import Any
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.dynamodb import DynamoDB
from tests.faults.dynamodb_proxy import DynamoProxy
from tests.faults.s3_proxy import Answer, Rule
from tests.worlds.dynamo_world import DynamoWorld
from tests.worlds.secret_search import Canaries
from tests.worlds.totals_world import AGGREGATE
from tidemark.lifecycle.attempt import order_of
from tidemark.sinks.aggregates.groups import combined
from tidemark.sinks.dynamodb import client, items, sink

Make = Callable[..., DynamoWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}
KEY = [{"AttributeName": "id", "KeyType": "HASH"}]


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
    assert f"{world.items_table}_contributions with _manifest_id = 1" in world.ok("where", world.topic, "1", "3")
    assert "a dead letter" in world.ok("where", world.topic, "0", "0")
    world.produce(30)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()
    world.lose_manifest_database()
    refused = world.here("run", "demo", "--run-key", "three")
    assert (refused.exit_code, "belongs to another manifest database" in refused.stderr) == (1, True)
    assert world.json("db", "adopt", "demo", "--why", "a test")["manifests"] == [1, 2, 3]
    world.assert_complete()


def test_the_example_counts_what_it_says(make_dynamo_world: Make) -> None:
    world = make_dynamo_world(partitions=1)
    world.targets["aws_default"] = world.targets.pop("dynamodb")
    example = (CHECKOUT / "include" / "pipelines" / "examples" / "orders_to_dynamodb.yaml").read_text()
    world.items_table = f"orders{world.topic}"
    for old, new in (
        ("connection: kafka_default", f'bootstrap_servers: "{world.broker.bootstrap_servers}"'),
        ("topics: [orders]", f"topics: [{world.topic}]"),
        ("table: orders_per_product", f"table: {world.items_table}"),
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
    """Also a key that it no longer contributes to; a total that nothing is left of is gone."""
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
    assert all(item["_rows"] and item["k"] != 3 for item in world.contributions())
    assert world.ok("audit", "demo", "--deep") == ""
    del world.settings["transform"]
    world.write_pipeline()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert world.rows() == everything
    world.assert_complete()


def test_what_was_changed_by_hand_is_named_and_a_replay_mends_it(world: DynamoWorld) -> None:
    total, contribution = world.items()[0], world.contributions()[0]
    world.change("", total, "least", "-5")
    audit = world.here("audit", "demo", "--deep").stdout
    assert f"are not the combination of their contributions, such as {total['_key']}" in audit
    world.change("_contributions", contribution, "n_sum", "-5")
    manifest = contribution["_manifest_id"]
    audit = world.here("audit", "demo", "--deep").stdout
    assert f"manifest {manifest}: its contributions were changed by hand" in audit
    world.change("_contributions", contribution, "_rows", "77")
    assert f"manifest {manifest}: the contributions of it count" in world.here("audit", "demo", "--deep").stdout
    for published in world.manifests():
        world.ok("replay", "demo", "--manifest", str(published["id"]))
    world.assert_complete()
    stray = {"_key": {"S": "[1]"}, "_manifest_id": {"N": "99"}, "_attempt": {"N": "1"}, "_rows": {"N": "1"}}
    world.client.put_item(TableName=f"{world.items_table}_contributions", Item=stray)
    stray_total = {"_key": {"S": "[2]"}, "_rows": {"N": "1"}}
    world.client.put_item(TableName=world.items_table, Item=stray_total)
    audit = world.here("audit", "demo", "--deep").stdout
    assert "has 1 contributions of manifest 99, which has contributed nothing" in audit
    assert "1 totals of connection dynamodb, DynamoDB table" in audit
    assert "have no contributions, such as [2]" in audit


@pytest.mark.parametrize("key", ["k", "n"])
@pytest.mark.parametrize(
    "gone", [(1,), *(pytest.param(gone, marks=pytest.mark.exhaustive) for gone in [(3,), (1, 2), (2, 3)]), (1, 2, 3)]
)
def test_contributions_that_were_deleted_are_counted_once_in_whatever_order_the_audits_replays_are_done(
    make_dynamo_world: Make, gone: tuple[int, ...], key: str
) -> None:
    """Of one, two or three manifests, with totals that they share (``k``) and without; a marker may be gone too, with
    the lists of keys."""
    world = make_dynamo_world(settings=ONE_MANIFEST)
    values = {"records": "count", "n_sum": "sum(n)", "least": "min(n)"}
    world.settings["sinks"] = [world.entry(aggregate={"group_by": [key], "values": values})]
    world.write_pipeline()
    for number in (1, 2, 3):
        world.produce(30)
        world.ok("run", "demo", "--run-key", str(number))
    right = totals_of(world)
    for number, order in enumerate(permutations(range(3))):
        for item in world.items("_contributions"):
            of_marker = item["_key"] in ("marker", f"keys {item['_manifest_id']}") and item["_manifest_id"] == gone[0]
            if (item["_manifest_id"] in gone and "_attempt" in item) or (number % 2 and of_marker):
                world.take_away("_contributions", item)
        audit = world.here("audit", "demo", "--deep")
        assert audit.exit_code == 1
        printed = sorted(line.rpartition("next: ")[2] for line in audit.stdout.splitlines())
        replays = [line for line in dict.fromkeys(printed) if line.startswith("tidemark replay")]
        assert {f"tidemark replay demo --manifest {manifest}" for manifest in gone} <= set(replays)
        for place in order:
            if place < len(replays):
                world.ok(*replays[place].split()[1:])
        assert totals_of(world) == right, "I19 contributions"
        assert world.ok("audit", "demo", "--deep") == ""


def test_contributions_that_no_list_of_keys_names_any_more_are_named_and_the_way_out_ends_well(
    make_dynamo_world: Make,
) -> None:
    """The lists of a manifest are deleted by hand, then a replay has fewer keys."""
    world = make_dynamo_world(settings=ONE_MANIFEST)
    world.produce(60)
    world.ok("run", "demo")
    for item in world.items("_contributions"):
        if item["_key"] == "keys 1":
            world.take_away("_contributions", item)
    world.settings["transform"] = [{"filter": "k <> 3"}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    audit = world.here("audit", "demo", "--deep").stdout
    assert "of it are not of attempt 2, which is there whole, such as of [3" in audit
    assert "delete those items by hand, then audit again" in audit
    for item in world.contributions():
        if item["_attempt"] == 1:
            world.take_away("_contributions", item)
    assert "have no contributions, such as [3" in world.here("audit", "demo", "--deep").stdout
    for item in world.items():
        if item["k"] == 3:
            world.take_away("", item)
    assert world.ok("audit", "demo", "--deep") == ""


def totals_of(world: DynamoWorld) -> list[dict[str, Any]]:
    """Every total without its revision, by key."""
    items = [{name: value for name, value in item.items() if name != "_revision"} for item in world.items()]
    return sorted(items, key=lambda item: str(item["_key"]))


def test_decimals_are_exact_and_a_number_that_dynamodb_does_not_keep_is_refused(make_dynamo_world: Make) -> None:
    world = make_dynamo_world(settings=ONE_MANIFEST)
    values = {"price": "sum(price)", "also": "max(also)", "day": "min(day)"}
    world.settings["decode"] = {
        "format": "json",
        "schema": "at TIMESTAMP NOT NULL, k STRING NOT NULL, price DECIMAL(38, 2), also STRING, day DATE",
    }
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["k"], "values": values})]
    world.write_pipeline()
    world.send(
        sold("a", "12345678901234567890123456.10"), sold("a", "0.20"), sold("é\\u0000", "1"), sold("x" * 3000, "1")
    )
    world.ok("run", "demo", "--run-key", "one")
    totals = {item["k"]["S"]: item for item in world.client.scan(TableName=world.items_table)["Items"]}
    assert Decimal(totals["a"]["price"]["N"]) == Decimal("12345678901234567890123456.30")
    assert (totals["a"]["_key"], totals["a"]["also"], totals["a"]["day"]) == (
        {"S": '["a"]'}, {"S": "é"}, {"S": "2024-03-01"},
    )  # fmt: skip
    assert totals["x" * 3000]["_key"]["S"].startswith("sha256:")
    assert "é\x00" in totals
    assert world.ok("audit", "demo", "--deep") == ""
    world.send(*[sold("a", "9" * 36 + ".00")] * 2)
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "a value of price has more than the 38 digits that DynamoDB keeps" in refused.stderr


def by_price(make: Make, kind: str = "DECIMAL(10, 1)") -> DynamoWorld:
    """A world with totals by a price, which is a decimal."""
    world = make(settings=ONE_MANIFEST, partitions=1)
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["price"], "values": {"records": "count"}})]
    read_price_as(world, kind)
    return world


def read_price_as(world: DynamoWorld, kind: str) -> None:
    world.settings["decode"] = {"format": "json", "schema": f"at TIMESTAMP NOT NULL, price {kind} NOT NULL"}
    world.write_pipeline()


def cost(*prices: str) -> list[str]:
    return [f'{{"at": "2024-03-01T01:00:00Z", "price": {price}}}' for price in prices]


def counted(world: DynamoWorld) -> dict[str, int]:
    return {item["_key"]: item["records"] for item in world.items()}


def test_a_number_is_one_key_whatever_type_it_has(make_dynamo_world: Make) -> None:
    world = by_price(make_dynamo_world)
    world.send(*cost("3.0", "-0.0", "10.0", "2.5"))
    world.ok("run", "demo", "--run-key", "one")
    assert counted(world) == {"[3]": 1, "[0]": 1, "[10]": 1, "[2.5]": 1}
    for number, kind in enumerate(("DECIMAL(10, 2)", "DECIMAL(38, 10)"), start=2):
        read_price_as(world, kind)
        world.send(*cost("3.00", "0", "10.00", "2.50"))
        world.ok("run", "demo", "--run-key", str(number))
        assert counted(world) == dict.fromkeys(("[3]", "[0]", "[10]", "[2.5]"), number)
    for kind in ("BIGINT", "INTEGER"):
        read_price_as(world, kind)
        world.send(*cost("3", "0", "10"))
        world.ok("run", "demo", "--run-key", kind)
    assert counted(world) == {"[3]": 5, "[0]": 5, "[10]": 5, "[2.5]": 3}
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("is_noted", [True, False], ids=["a table of this version", "an older table"])
@pytest.mark.parametrize("kind", ["STRING", "TIMESTAMP"])
def test_a_key_of_another_kind_is_refused_before_anything_is_read(
    make_dynamo_world: Make, kind: str, is_noted: bool
) -> None:
    world = by_price(make_dynamo_world)
    world.send(*cost("3.0"))
    world.ok("run", "demo", "--run-key", "one")
    if not is_noted:
        forget_notes(world)
    read_price_as(world, kind)
    world.send(*cost('"3.0"'))
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "price, which is part of the key, is" in refused.stderr
    assert "a key would have two totals" in refused.stderr
    assert "price, which is part of the key, is" in world.here("doctor", "demo").stdout
    assert counted(world) == {"[3]": 1}


def as_before(columns: dict[str, dict[str, str]], decimals: dict[str, int]) -> str:
    """Numbers in keys as their type writes them: so older versions had them."""
    del decimals
    text = f"[{', '.join(column['N'] if 'N' in column else json.dumps(column['S']) for column in columns.values())}]"
    return text if len(text) <= 2_048 else f"sha256:{sha256(text.encode()).hexdigest()}"


def forget_notes(world: DynamoWorld) -> None:
    """What older versions did not note beside the owner."""
    world.client.update_item(
        TableName=f"{world.items_table}_contributions", Key={"_key": {"S": "owner"}, "_manifest_id": {"N": "0"}},
        UpdateExpression="REMOVE #tables, decimals, kinds", ExpressionAttributeNames={"#tables": "tables"},
    )  # fmt: skip


def test_totals_that_an_older_version_has_written_are_found_by_their_keys_also_when_the_type_changes(
    make_dynamo_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = by_price(make_dynamo_world)
    world.send(*cost("3.0", "2.5"))
    with monkeypatch.context() as patched:
        patched.setattr(items, "key_text", as_before)
        patched.setattr(items, "_shortest", lambda column: column)
        world.ok("run", "demo", "--run-key", "one")
    forget_notes(world)
    assert counted(world) == {"[3.0]": 1, "[2.5]": 1}
    read_price_as(world, "DECIMAL(10, 2)")
    world.send(*cost("3.00", "2.50", "2.55"))
    world.ok("run", "demo", "--run-key", "two")
    assert counted(world) == {"[3.0]": 2, "[2.5]": 2, "[2.55]": 1}
    read_price_as(world, "BIGINT")
    world.send(*cost("3"))
    world.ok("run", "demo", "--run-key", "three")
    assert counted(world) == {"[3.0]": 3, "[2.5]": 2, "[2.55]": 1}
    assert world.ok("audit", "demo", "--deep") == ""


LONG = "long STRING"


def long_cost(*prices: str) -> list[str]:
    return [f'{{"long": "{"x" * 3000}", {record[1:]}' for record in cost(*prices)]


def test_totals_with_keys_that_are_hashes_are_found_after_an_older_version_too(
    make_dynamo_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key says how many decimals its prices have: the one with which it has its hash."""
    world = by_price(make_dynamo_world)
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["long", "price"], "values": {"records": "count"}})]
    read_price_as(world, f"DECIMAL(10, 2) NOT NULL, {LONG}")
    world.send(*long_cost("3.00", "2.50"))
    with monkeypatch.context() as patched:
        patched.setattr(items, "key_text", as_before)
        patched.setattr(items, "_shortest", lambda column: column)
        world.ok("run", "demo", "--run-key", "one")
    forget_notes(world)
    before = counted(world)
    assert list(before.values()) == [1, 1]
    read_price_as(world, f"DECIMAL(10, 1) NOT NULL, {LONG}")
    world.send(*long_cost("3.0", "2.5"))
    world.ok("run", "demo", "--run-key", "two")
    assert counted(world) == dict.fromkeys(before, 2)
    assert world.ok("audit", "demo", "--deep") == ""


def test_two_totals_of_one_key_that_an_older_version_has_made_are_named_and_replays_make_them_one(
    make_dynamo_world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = by_price(make_dynamo_world)
    with monkeypatch.context() as patched:
        patched.setattr(items, "key_text", as_before)
        patched.setattr(items, "_shortest", lambda column: column)
        for kind in ("DECIMAL(10, 1)", "DECIMAL(10, 2)"):
            read_price_as(world, kind)
            world.send(*cost("3.0", "7.0"))
            world.ok("run", "demo", "--run-key", kind)
    forget_notes(world)
    assert counted(world) == {"[3.0]": 1, "[3.00]": 1, "[7.0]": 1, "[7.00]": 1}
    world.send(*cost("3.00"))
    world.ok("run", "demo", "--run-key", "three")
    for _ in range(2):
        audit = world.here("audit", "demo", "--deep").stdout
        for line in audit.splitlines():
            assert "have a key that is written in another way now" in line
            world.ok(*line.rpartition("next: tidemark ")[2].split())
    assert sorted(counted(world).values()) == [2, 3]
    assert len({key.count("0") for key in counted(world)}) == 1
    assert world.ok("audit", "demo", "--deep") == ""


def sold(k: str, price: str) -> str:
    return f'{{"at": "2024-03-01T01:00:00Z", "k": "{k}", "price": {price}, "also": "é", "day": "2024-03-01"}}'


def test_a_total_that_manifests_make_too_long_together_is_refused(make_dynamo_world: Make) -> None:
    """What the second has put before stays, and is put once when it goes on without that record."""
    world = make_dynamo_world(settings=ONE_MANIFEST, partitions=1)
    world.settings["decode"] = {
        "format": "json", "schema": "at TIMESTAMP NOT NULL, k STRING NOT NULL, price DECIMAL(38, 2)"
    }  # fmt: skip
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["k"], "values": {"price": "sum(price)"}})]
    world.write_pipeline()
    large = "9" * 36 + ".99"
    world.send(sold("a", large))
    world.ok("run", "demo", "--run-key", "one")
    world.send(*(sold(f"b{number}", "1") for number in range(60)), sold("a", large))
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "price of a total would have more than the 38 digits that DynamoDB keeps" in refused.stderr
    assert '["a"]' not in refused.stderr, "a key is a value of somebody's row"
    assert "what was put of the manifest before stays" in refused.stderr
    assert [item["_manifest_id"] for item in world.contributions()].count(2) == 49
    add = {"UpdateExpression": "ADD price :more", "ExpressionAttributeValues": {":more": {"N": large}}}
    with pytest.raises(ClientError, match="precision up to 38 digits"):  # also when two add at once
        world.client.update_item(TableName=world.items_table, Key={"_key": {"S": '["a"]'}}, **add)
    world.settings["transform"] = [{"filter": "k <> 'a'"}]
    world.write_pipeline()
    world.ok("retry", "demo")
    totals = {item["k"]: item["price"] for item in world.items()}
    assert totals == {"a": Decimal(large), **{f"b{number}": 1 for number in range(60)}}
    assert world.ok("audit", "demo", "--deep") == ""


def test_keys_are_counted_while_they_are_read(make_dynamo_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many, no more wait in memory than max_keys and what one task has staged at once."""
    at_once: list[int] = []

    def counted(tables: list[pa.Table], *arguments: Any) -> pa.Table:
        at_once.append(sum(table.num_rows for table in tables))
        return combined(tables, *arguments)

    monkeypatch.setattr(sink, "combined", counted)
    world = make_dynamo_world(settings=ONE_MANIFEST, partitions=5)
    world.settings["sinks"] = [world.entry(max_keys=8)]
    world.write_pipeline()
    world.produce(300)
    refused = world.here("run", "demo", "--run-key", "one")
    assert refused.exit_code == 1
    assert "the manifest contributes to at least 18 keys, and max_keys is 8" in refused.stderr
    assert at_once == [18], "the groups of one task of five"
    world.settings["sinks"] = [world.entry(max_keys=18)]
    world.write_pipeline()
    world.ok("retry", "demo")
    assert at_once[1:] == [54, 54, 18], "every task has all keys: they are counted once"
    world.assert_complete()


def test_a_sink_that_is_added_is_filled_and_one_that_is_renamed_goes_on(make_dynamo_world: Make) -> None:
    world = make_dynamo_world(has_lake=True)
    lake, totals = world.settings["sinks"]
    world.add_and_rename(totals, lake, to="running")
    world.assert_complete()
    assert {row["decision"] for row in world.json("history", "demo")} == {"fill", "rename-sink"}


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
    tables = mine.client("dynamodb", endpoint_url=dynamodb.endpoint_url, region_name="us-east-1")
    assert tables.scan(TableName=world.items_table)["Count"] > 0, "the emulator has a database for each key id"
    tables.delete_table(TableName=world.items_table)
    definitions = [{"AttributeName": "id", "AttributeType": "N"}]
    tables.create_table(
        TableName=world.items_table, KeySchema=KEY, BillingMode="PAY_PER_REQUEST", AttributeDefinitions=definitions
    )
    words = ("retry", "run", "doctor", "audit", "status", "history", "manifests")
    outputs += [world.here(word, "demo") for word in words]
    assert [done.exit_code for done in outputs[:4]] == [0, 0, 1, 1]
    assert "has the keys id (N)" in outputs[2].stderr
    for done in (*outputs, world.here("show", "3", "--json")):
        canaries.look("an output", done.output)
    for manifest in world.context().database.manifests.find("demo"):
        canaries.look("an order", order_of(world.context(), manifest, 1).to_json())
    files = {file.suffix for file in canaries.look_at_files(world.folder)}
    assert {".yaml", ".parquet"} <= files
    assert {"tidemark.event", "tidemark.attempt"} <= set(canaries.look_at_database(world.dsn))
    assert canaries.leaks == []


def test_tables_that_do_not_fit_are_refused_with_what_to_do(make_dynamo_world: Make) -> None:
    world = make_dynamo_world()
    world.settings["sinks"] = [world.entry(auto_create=False)]
    world.write_pipeline()
    world.produce(20)
    missing = world.here("run", "demo")
    assert (missing.exit_code, "aws dynamodb create-table --table-name" in missing.stderr) == (1, True)
    world.client.create_table(
        TableName=world.items_table, KeySchema=KEY, BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
    )  # fmt: skip
    world.settings["sinks"] = [world.entry()]
    world.write_pipeline()
    other = world.here("run", "demo")
    assert (other.exit_code, "has the keys id (N), and totals need _key (S)" in other.stderr) == (1, True)
    assert "has the keys id (N)" in world.here("doctor", "demo").stdout
    world.client.delete_table(TableName=world.items_table)
    world.settings["sinks"] = [world.entry(max_keys=3)]
    world.write_pipeline()
    for command in ("retry", "run"):
        many = world.here(command, "demo")
    assert (many.exit_code, "and max_keys is 3" in many.stderr) == (1, True)
    assert (world.items(), world.contributions()) == ([], [])
    world.settings["sinks"] = [world.entry()]
    world.write_pipeline()
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()


def test_one_table_holds_the_totals_of_one_pipeline_by_one_definition(world: DynamoWorld) -> None:
    text = world.another("second")
    (world.pipelines / "second.yaml").write_text(text)
    refused = world.here("run", "second")
    assert (refused.exit_code, "the table holds totals of pipeline demo: the two would mix" in refused.stderr) == (
        1, True,
    )  # fmt: skip
    (world.pipelines / "second.yaml").unlink()
    world.settings["sinks"] = [world.entry(aggregate={**AGGREGATE, "window": "1d"})]
    world.write_pipeline()
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "the table holds totals by another aggregate than this one" in refused.stderr


@pytest.mark.parametrize(
    ("code", "reasons", "message"),
    [
        ("AccessDeniedException", (), "give these keys dynamodb:DescribeTable"),
        ("TransactionCanceledException", ("None", "TransactionConflict"), "DynamoDB was too busy"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                ("UnrecognizedClientException", (), "check the keys of the connection"),
                ("ProvisionedThroughputExceededException", (), "raise the capacity of both tables"),
                ("TransactionCanceledException", ("ThrottlingError",), "DynamoDB was too busy"),
                ("ValidationException", (), "what was put stays, and is not put twice"),
            )
        ),
    ],
)
def test_what_dynamodb_refuses_is_said_and_tried_again(
    make_dynamo_world: Make,
    code: str,
    reasons: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    dynamodb: Any,
) -> None:
    with DynamoProxy(dynamodb.endpoint_url) as proxy:
        world = make_dynamo_world(endpoint_url=proxy.endpoint_url, settings=ONE_MANIFEST)
        world.produce(30)
        proxy.reasons = reasons
        rule = Rule(Answer.REFUSED, having="TransactWriteItems", times=2, skip=2, status=400, code=code)
        proxy.arm(rule)
        done = world.here("run", "demo", "--run-key", "one")
        assert done.exit_code == (0 if "busy" in message or "capacity" in message else 1), done.stderr
        monkeypatch.setattr(client, "PATIENCE_S", 0.0)
        proxy.arm(Rule(Answer.REFUSED, having="TransactWriteItems", times=-1, status=400, code=code))
        world.produce(30)
        refused = world.here("run", "demo", "--run-key", "two")
        assert refused.exit_code == 1
        assert message in refused.stderr
        proxy.disarm()
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", "two")
        world.assert_complete()
