"""Totals with a copy in DynamoDB by the command line: what readers find there, what is refused, what an audit says."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from tests.worlds.dynamo_world import DynamoWorld
from tidemark.errors import SinkRefused
from tidemark.sinks.postgres.totals import served

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
def test_an_item_that_is_not_its_total_is_named_and_put_again(world: DynamoWorld, how: str) -> None:
    item = world.items()[0]
    if how == "stray":
        stray = {"_key": {"S": '["77"]'}, "k": {"N": "77"}, "_rows": {"N": "1"}, "_revision": {"N": "1"}}
        world.client.put_item(TableName=world.items_table, Item=stray)
    else:
        getattr(world, how)(item, *(("n_sum", "-5") if how == "change" else ()))
    assert f"1 item of {world.items_table} are not the totals" in world.here("audit", "demo", "--deep").stdout
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    if how == "stray":
        world.client.delete_item(TableName=world.items_table, Key={"_key": stray["_key"]})
    world.assert_complete()


def test_a_table_in_the_place_of_the_copy_is_noticed_and_filled_again(world: DynamoWorld) -> None:
    """As when it was restored from a backup, also from one that is newer than the totals."""
    items = [
        item
        for page in world.client.get_paginator("scan").paginate(TableName=world.items_table)
        for item in page["Items"]
    ]
    for item in items[::2]:
        if "_revision" in item:
            item |= {"_revision": {"N": "1000000"}, "n_sum": {"N": "-1"}}
    described = world.client.describe_table(TableName=world.items_table)["Table"]
    world.client.delete_table(TableName=world.items_table)
    world.client.create_table(
        TableName=world.items_table, BillingMode="PAY_PER_REQUEST",
        **{name: described[name] for name in ("AttributeDefinitions", "KeySchema")},
    )  # fmt: skip
    for item in items:
        world.client.put_item(TableName=world.items_table, Item=item)
    world.produce(30)
    assert "is another one than this database has published to" in world.here("run", "demo", "--run-key", "two").stderr
    assert f"{world.items_table}: " in world.ok("db", "adopt", "demo", *WHY)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()


def test_a_total_that_dynamodb_does_not_keep_is_refused_before_it_counts(make_dynamo_world: Make) -> None:
    world = make_dynamo_world(partitions=1, settings=ONE_MANIFEST)
    world.settings["decode"]["schema"] = "at TIMESTAMP NOT NULL, k BIGINT NOT NULL, n DECIMAL(38,20)"
    world.settings["sinks"] = [world.entry(aggregate={"group_by": ["k"], "values": {"n_sum": "sum(n)"}})]
    world.write_pipeline()
    at = "2024-03-01T10:00:00Z"
    world.send(
        *(f'{{"n": {number}, "k": 1, "at": "{at}"}}' for number in ("999999999999999999.00000000000000000001", "1"))
    )
    failed = world.here("run", "demo", "--run-key", "one")
    assert (failed.exit_code, "more than the 38 digits" in failed.stderr) == (1, True), (
        failed.stderr,
        failed.stdout,
        world.items(),
    )
    assert world.items() == []


def test_one_table_has_the_copy_of_one_sink(world: DynamoWorld) -> None:
    with pytest.raises(SinkRefused, match="has the copy of other totals"):
        copy_of(world).ensure("another table of totals")


def test_an_older_revision_never_replaces_a_newer_one(world: DynamoWorld) -> None:
    table = copy_of(world)
    before: list[Any] = list(table.items())
    table.put([{**item, "_revision": {"N": "0"}, "n_sum": {"N": "-1"}} for item in before])
    assert list(table.items()) == before


def copy_of(world: DynamoWorld) -> served.ServedTable:
    settings = served.ServedInDynamoDB(table=world.items_table, connection="dynamodb")
    return served.ServedTable(settings, lambda _: json.loads(world.targets["dynamodb"]), {})
