"""Kills, pauses and secrets over a lake in Azurite."""

import json
import signal
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from sandbox.services.azurite import KEY, Container
from tests.worlds.azure_world import AzureWorld
from tests.worlds.world import wait_stopped, wake

Make = Callable[..., AzureWorld]
RUN_KEY = ("--run-key", "one")


@pytest.mark.parametrize(
    "point", ["stage.mid", "stage.done", "publish.receipt", "publish.mid", "publish.before_record", "publish.marked"]
)
def test_killed_over_a_container_nothing_is_missing_and_nothing_twice(make_azure_world: Make, point: str) -> None:
    world = make_azure_world()
    world.produce(60, bad_every=9)
    killed = world.tidemark("run", "demo", *RUN_KEY, failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.finish()
    assert world.staging() == []


@pytest.mark.parametrize(
    "point",
    [
        "publish.before_record",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("stage.mid", "publish.receipt", "publish.mid")),
    ],
)
def test_killed_over_a_table_in_a_container_nothing_is_missing_and_nothing_twice(
    make_delta_world: Callable[..., Any], azure: Container, point: str
) -> None:
    world = make_delta_world(bucket=azure.below(uuid4().hex))
    world.produce(60, bad_every=9)
    killed = world.tidemark("run", "demo", *RUN_KEY, failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.finish()


def test_woken_late_over_a_container_an_attempt_changes_nothing(make_azure_world: Make) -> None:
    world = make_azure_world()
    world.produce(60)
    paused = world.start("run", "demo", *RUN_KEY, failpoint="publish.mid:stop")
    wait_stopped(paused)
    world.ok("replay", "demo", *RUN_KEY, "--take-over")
    before = world.exact()
    assert before == world.everything()
    wake(paused)
    assert world.exact() == world.listing() == before, "it takes back what it had put"
    world.finish()


@pytest.mark.parametrize("by_sas", [False, True], ids=["key", "token"])
def test_no_key_of_a_container_is_ever_written_or_said(make_azure_world: Make, azure: Container, by_sas: bool) -> None:
    connection = azure.connection_by_sas() if by_sas else azure.connection()
    secret = json.loads(connection)["extra"]["sas_token"].rpartition("sig=")[2] if by_sas else KEY
    world = make_azure_world(connection=connection)
    world.produce(40, bad_every=9)
    failed = world.tidemark("run", "demo", *RUN_KEY, failpoint="publish.before_record:raise")
    assert failed.returncode == 1
    retried = world.tidemark("retry", "demo")
    assert retried.returncode == 0, retried.stderr
    assert not [text for text in world.texts(failed, retried) if secret in text]
