"""G3: a COMMIT in the database of the table gets lost, or its answer; the marker shows what happened."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.faults.postgres_proxy import Armed, Fault, Proxy
from tests.faults.runs_with_lost_answers import FAULTS, Fresh, lose_each
from tests.worlds.table_world import TableWorld
from tests.worlds.totals_world import TotalsWorld
from tests.worlds.world import World

TARGETS = ("a database of its own", "the manifest database", "a lake beside it", "totals")


@pytest.fixture(params=TARGETS)
def fresh(
    request: pytest.FixtureRequest,
    postgres: Postgres,
    template: str,
    postgres_proxy: Proxy,
    broker: Broker,
    tmp_path: Path,
    spark_jars: Path,
) -> Fresh:
    """Makes one pipeline with a table after the other; both of its databases are reached through the proxy."""

    @contextmanager
    def make() -> Iterator[World]:
        with postgres.temporary_database("test", template) as dsn, postgres.temporary_database("target") as target:
            folder, manifests = tmp_path / dsn.rpartition("/")[2], postgres_proxy.dsn(dsn)
            kind = TotalsWorld if request.param == "totals" else TableWorld
            targets = {
                "warehouse": manifests if request.param == "the manifest database" else postgres_proxy.dsn(target)
            }
            has_lake = request.param == "a lake beside it"
            with kind(folder, manifests, broker, spark_jars, targets=targets, has_lake=has_lake) as made:
                yield made

    return make


@FAULTS
def test_G3_a_merge_whose_commit_is_unknown_is_done_once(fresh: Fresh, postgres_proxy: Proxy, fault: Fault) -> None:
    with fresh() as world:
        world.produce(30)
        armed = postgres_proxy.arm(Armed(fault, having="INSERT INTO tidemark_target.marker"))
        done = world.here("run", "demo", "--run-key", "one")
        assert armed.struck
        assert done.exit_code in (0, 1), "a merge that was committed may be found at once"
        world.finish()


@pytest.mark.exhaustive
@FAULTS
def test_G3_every_commit_of_a_run_may_be_unknown(fresh: Fresh, postgres_proxy: Proxy, fault: Fault) -> None:
    met = lose_each(fresh, postgres_proxy, fault, every=False)
    assert sum("INSERT INTO publication" in statement for statement in met) >= 2, "one for each sink of two manifests"
    assert len(met) >= 7


@pytest.mark.exhaustive
@pytest.mark.timeout(900)  # 2 minutes, more beside other work
@FAULTS
@pytest.mark.parametrize("fresh", TARGETS[2:], indirect=True)
def test_G3_the_connection_may_break_at_any_statement_of_a_run(
    fresh: Fresh, postgres_proxy: Proxy, fault: Fault
) -> None:
    met = lose_each(fresh, postgres_proxy, fault, every=True, step=25)  # each of about 400 would take 20 minutes
    assert len(met) > 11
