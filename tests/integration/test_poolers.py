"""Schedule 15: a pooler that gives PostgreSQL's sessions out by transaction is refused, before it does any harm."""

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.worlds.pooler import Pooler
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World
from tidemark.database import usable
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.errors import ConfigurationError, Unavailable


@pytest.fixture
def by_transaction(database: str) -> Iterator[Pooler]:
    with Pooler(database, by_transaction=True) as pooler:
        yield pooler


@pytest.mark.parametrize("others", [0, 1, 5])
def test_it_is_refused_by_name_and_leaves_no_setting_in_its_sessions(by_transaction: Pooler, others: int) -> None:
    clients = [psycopg.connect(by_transaction.dsn) for _ in range(others)]
    for client in clients:
        client.execute("SELECT 1")
    for client in clients:
        client.close()
    with pytest.raises(ConfigurationError, match="pool_mode = transaction") as refused:
        migrate(by_transaction.dsn)
    assert "pool_mode = session" in refused.value.next_step
    with pytest.raises(ConfigurationError, match="pool_mode = transaction"):
        ManifestDatabase(by_transaction.dsn, "test")
    assert by_transaction.settings("search_path") == {"('\"$user\", public',)"}


def test_one_that_gives_sessions_out_by_statement_is_refused_as_one_that_may_be_that(database: str) -> None:
    with (
        Pooler(database, by_transaction=True, by_statement=True) as pooler,
        pytest.raises(ConfigurationError, match="pool_mode = transaction, or statement") as refused,
    ):
        ManifestDatabase(pooler.dsn, "test")
    assert "pool_mode = session" in refused.value.next_step


def test_plan_refuses_it_and_the_doctor_names_it(world: World) -> None:
    with Pooler(world.dsn, by_transaction=True) as pooler:
        world.dsn = pooler.dsn
        refused = world.here("plan", "demo")
        assert (refused.exit_code, "pool_mode = transaction" in refused.stderr) == (2, True)
        findings = json.loads(world.here("doctor", "demo", "--json").stdout)
    failed = {finding["check"]: finding["message"] for finding in findings if finding["severity"] == "failed"}
    assert "pool_mode = transaction" in failed["manifest database"]


def test_a_pooler_that_keeps_a_session_for_its_client_may_be_used(database: str) -> None:
    with Pooler(database, by_transaction=False) as pooler:
        assert not migrate(pooler.dsn)
        with ManifestDatabase(pooler.dsn, "test") as first, ManifestDatabase(pooler.dsn, "test") as second:
            assert first.id() == second.id()


def test_a_table_behind_it_is_refused_and_the_lake_beside_it_is_written(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world(has_lake=True, same=False)
    world.produce(20)
    with Pooler(world.targets["warehouse"], by_transaction=True) as pooler:
        world.targets["warehouse"] = pooler.dsn
        refused = world.here("run", "demo")
        assert refused.exit_code == 1
        assert "pool_mode = transaction" in refused.stderr
        assert world.exact() == world.everything()


def test_a_pool_of_one_session_is_told_as_what_it_is(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usable, "ANSWER_S", 1.0)
    with (
        Pooler(database, by_transaction=False, most=1) as pooler,
        pytest.raises(Unavailable, match="but gave no session within 15 s: it is a pooler") as refused,
    ):
        ManifestDatabase(pooler.dsn, "test")
    assert "let the pool have more sessions" in refused.value.next_step


@pytest.mark.parametrize("by_transaction", [False, True])
def test_a_pool_whose_sessions_others_have_is_told_as_what_it_is(
    database: str, monkeypatch: pytest.MonkeyPatch, by_transaction: bool
) -> None:
    monkeypatch.setattr(usable, "ANSWER_S", 1.0)
    with Pooler(database, by_transaction=by_transaction, most=1) as pooler, psycopg.connect(pooler.dsn) as busy:
        busy.execute("SELECT 1")
        with pytest.raises(Unavailable, match="but gave no session within 15 s: it is a pooler"):
            ManifestDatabase(pooler.dsn, "test")


def test_two_sessions_are_enough_for_a_command_and_one_by_transaction_is_still_refused_by_name(database: str) -> None:
    with Pooler(database, by_transaction=False, most=2) as pooler, ManifestDatabase(pooler.dsn, "test") as manifests:
        assert manifests.id()
    with (
        Pooler(database, by_transaction=True, most=1) as pooler,
        pytest.raises(ConfigurationError, match="pool_mode = transaction"),
    ):
        ManifestDatabase(pooler.dsn, "test")
