"""A pipeline whose lake is in Azurite: run, dead letters, replay, audit, and what ``doctor`` says of it."""

import json
from collections.abc import Callable

import pytest

from sandbox.services.azurite import ACCOUNT, Container
from tests.worlds.azure_world import CONNECTION, AzureWorld

Make = Callable[..., AzureWorld]
RUN_KEY = ("--run-key", "one")


def test_a_run_a_replay_and_an_audit_over_a_container(make_azure_world: Make) -> None:
    world = make_azure_world()
    world.produce(60, bad_every=9)
    world.ok("run", "demo", *RUN_KEY)
    first = world.exact()
    assert first == world.listing() == world.recorded() == world.everything()
    assert any(key.startswith("_dead_letters/") for key in world.object_keys())
    world.ok("replay", "demo", *RUN_KEY)
    assert world.exact() == world.listing() == first
    assert {manifest["attempt"] for manifest in world.manifests()} == {2}
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
    world.write_pipeline()
    before = set(world.object_keys())
    world.ok("replay", "demo", *RUN_KEY)
    assert world.exact() == world.listing() == world.recorded() == first
    assert not {key for key in before if key.startswith("raw/")} & set(world.object_keys()), "other rows, other files"
    world.ok("audit", "demo", "--deep")
    assert all(published["path"].startswith(f"{world.root}/") for published in world.json("objects", "demo"))
    world.damage(world.manifests()[0])
    assert world.here("audit", "demo").exit_code == 1


@pytest.mark.parametrize(
    ("connection", "message", "step"),
    [
        ({"login": ACCOUNT, "password": "Y2FuYXJ5"}, "AuthorizationFailure", "check the key or SAS token"),
        ({"login": ACCOUNT}, "has neither a key nor a SAS token", "give login (the account) and password"),
    ],
)
def test_doctor_names_what_is_wrong_with_the_keys_and_is_content_with_the_right_ones(
    make_azure_world: Make, azure: Container, connection: dict[str, str], message: str, step: str
) -> None:
    host = json.loads(azure.connection())["host"]
    world = make_azure_world(connection=json.dumps({"conn_type": "wasb", "host": host, **connection}))
    world.produce(1)
    told = world.here("doctor", "demo")
    assert told.exit_code == 1
    assert message in told.stdout
    assert step in " ".join(told.stdout.split())
    world.targets[CONNECTION] = azure.connection()
    world.ok("doctor", "demo")
