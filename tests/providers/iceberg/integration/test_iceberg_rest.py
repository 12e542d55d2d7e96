"""An Iceberg table in a real REST catalog."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog.rest import RestCatalog

from sandbox.bootstrap.checkout import STATE
from sandbox.services.iceberg_catalog import IcebergCatalog
from sandbox.services.postgres import Postgres
from sandbox.services.s3 import Bucket
from tests.worlds.iceberg_readers import read_by_duckdb
from tests.worlds.iceberg_world import TABLE, IcebergWorld, KeyedIcebergWorld
from tests.worlds.rest_proxy import Late, Refuses, RestProxy
from tests.worlds.s3_world import Prefix


@pytest.fixture
def proxy(request: pytest.FixtureRequest, services: Path, postgres: Postgres, tmp_path: Path) -> Iterator[RestProxy]:
    """In front of an empty catalog, whose warehouse is that of the first world of the test."""
    world = getattr(request, "param", "iceberg0")
    with (
        postgres.temporary_database("catalog") as dsn,
        IcebergCatalog(services, STATE, dsn, str(tmp_path / world / "warehouse")) as catalog,
        RestProxy(catalog.port) as opened,
    ):
        yield opened


def test_a_table_of_a_rest_catalog_is_exact_also_when_commits_are_answered_with_a_time_out(
    make_iceberg_world: Callable[..., IcebergWorld], proxy: RestProxy
) -> None:
    world = make_iceberg_world(iceberg={"catalog": "rest"}, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.targets["warehouse"] = f"http://client:canary-of-a-catalog@127.0.0.1:{proxy.own_port}"
    world.produce(60, bad_every=13)
    world.ok("run", "demo", "--run-key", "0")
    world.produce(30)
    proxy.late = Late.DONE
    world.ok("run", "demo", "--run-key", "1")
    assert proxy.struck == 1, "the table says that the commit was done"
    world.assert_readers_complete()

    world.produce(30)
    proxy.late = Late.LOST
    failed = world.here("run", "demo", "--run-key", "2")
    assert proxy.struck == 2
    assert failed.exit_code == 1
    assert "the catalog does not answer" in failed.stderr
    assert "canary-of-a-catalog" not in failed.stderr + failed.stdout
    world.assert_whole()
    world.ok("retry", "demo")

    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT"}
    world.write_pipeline()
    proxy.late = Late.DONE
    world.ok("replay", "demo", "--manifest", "1")
    assert proxy.struck == 3
    world.assert_complete()
    assert world.ok("audit", "demo", "--deep") == ""
    table = world.table()
    assert table is not None
    assert Counter(read_by_duckdb(table.metadata_location)) == world.rows(), "another engine reads the same"


@pytest.mark.parametrize("proxy", ["keyed0"], indirect=True)
def test_a_table_with_a_key_of_a_rest_catalog_is_exact_also_when_commits_are_answered_with_a_time_out(
    make_keyed_iceberg_world: Callable[..., KeyedIcebergWorld], proxy: RestProxy
) -> None:
    world = make_keyed_iceberg_world(iceberg={"catalog": "rest"}, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.targets["warehouse"] = f"http://client:secret@127.0.0.1:{proxy.own_port}"
    for number, late in enumerate((None, Late.DONE, Late.LOST)):
        world.produce(30, bad_every=13)
        proxy.late = late
        done = world.here("run", "demo", "--run-key", str(number))
        assert done.exit_code == (1 if late is Late.LOST else 0), done.stderr
        world.assert_whole()
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_catalog_that_refuses_a_login_a_token_or_a_right_is_not_asked_again(
    make_iceberg_world: Callable[..., IcebergWorld], proxy: RestProxy
) -> None:
    world = make_iceberg_world(iceberg={"catalog": "rest"})
    world.targets["warehouse"] = f"http://client:canary-of-a-catalog@127.0.0.1:{proxy.own_port}"
    world.produce(10)
    for refuses in Refuses:
        proxy.refuses = refuses
        failed = world.here("run", "demo")
        assert (failed.exit_code, "[error=access-denied " in failed.stderr) == (1, True), failed.stderr
        assert "the catalog refuses access" in failed.stderr
        assert "correct login and password of its connection" in failed.stderr
        assert "canary-of-a-catalog" not in failed.stderr + failed.stdout
    proxy.refuses = None
    world.ok("run", "demo")
    world.assert_complete()


def test_a_rest_catalog_may_keep_its_tables_in_a_bucket(
    make_iceberg_world: Callable[..., IcebergWorld], services: Path, postgres: Postgres, s3: Bucket
) -> None:
    own = s3.below(uuid4().hex)
    warehouse = own.root
    with (
        postgres.temporary_database("catalog") as dsn,
        IcebergCatalog(services, STATE, dsn, warehouse, s3) as catalog,
    ):
        world = make_iceberg_world(iceberg={"catalog": "rest", "warehouse": warehouse, "store_connection": "store"})
        world.targets |= {"warehouse": catalog.url, "store": s3.connection()}
        world.produce(60, bad_every=13)
        world.ok("run", "demo")
        world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT"}
        world.write_pipeline()
        world.ok("replay", "demo", "--manifest", "1")
        assert world.ok("audit", "demo", "--deep") == ""
        reader = RestCatalog(
            "reader",
            uri=catalog.url,
            **{"s3.endpoint": s3.endpoint_url, "s3.access-key-id": s3.key_id, "s3.secret-access-key": s3.secret},
        )
        rows = reader.load_table(TABLE).scan(selected_fields=("_topic_partition", "_offset", "k")).to_arrow()
        places = zip(rows["_topic_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)
        assert rows.num_rows == len(set(places)) == 60 - len(world.bad)
        written = Prefix(own).keys()
    assert any(key.endswith(".metadata.json") for key in written), "the server's own files are there too"
    assert not (world.folder / "warehouse").exists()
