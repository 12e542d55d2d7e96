"""I30: a folder of one sink in that of another is refused, and no audit calls for the removal of its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.services.postgres import Postgres
from sandbox.services.s3 import Bucket
from tests.worlds.world import World
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import from_environment
from tidemark.lifecycle import preflight
from tidemark.providers.delta.settings import Settings as Delta
from tidemark.providers.iceberg.settings import Settings as Iceberg
from tidemark.sinks.files.settings import Settings as Files
from tidemark.sinks.object_store.owner_file import claim_in, claimed_around, claimed_inside
from tidemark.sinks.settings import SinkSettings, nested_folders
from tidemark.storage.open import open_store

Make = Callable[..., World]
ICEBERG = {"connection": "catalog", "table": "ns.rows", "auto_create": True}


def entry(world: World, kind: str, folder: str) -> dict[str, Any]:
    """A sink of this kind whose folder, or warehouse, is this one below the folder of a world."""
    place = str(world.folder / folder)
    return {
        "files": {"files": {"root": place, "layout": "raw/{stream}"}},
        "delta": {"delta": {"location": place, "auto_create": True}},
        "iceberg": {"iceberg": {**ICEBERG, "warehouse": place}},
        "topic": {"topic": {"bootstrap_servers": world.broker.bootstrap_servers, "topic": "never", "staging": place}},
    }[kind]


def second(world: World, *sinks: dict[str, Any]) -> None:
    """Another pipeline of the same topic."""
    pipeline = yaml.safe_load(world.another("second"))
    (world.pipelines / "second.yaml").write_text(yaml.safe_dump({**pipeline, "sinks": [*sinks]}))


NESTED = [
    ("files", "lake", "files", "lake/shop"),
    ("files", "lake/shop", "files", "lake"),
    ("files", "lake", "delta", "lake/shop/table"),
    ("delta", "lake/shop/table", "files", "lake"),
    ("files", "lake", "iceberg", "lake/warehouse"),
    ("iceberg", "lake/warehouse", "files", "lake"),
    ("delta", "table", "delta", "table/inner"),
]


@pytest.mark.parametrize(("kind", "place", "later_kind", "later"), NESTED)
def test_a_folder_in_that_of_another_pipeline_is_told_by_validate_and_refused_by_doctor_and_run(
    make_world: Make, postgres: Postgres, kind: str, place: str, later_kind: str, later: str
) -> None:
    with postgres.temporary_database("catalog") as catalog:
        world = make_world(targets={"catalog": catalog})
        world.settings["sinks"] = [entry(world, kind, place)]
        world.write_pipeline()
        world.produce(20)
        world.ok("run", "demo")
        second(world, entry(world, later_kind, later))
        assert "one lies in the other" in world.here("validate").output
        for words in (("plan", "second", "--dry-run"), ("run", "second"), ("doctor", "second")):
            refused = world.here(*words)
            assert refused.exit_code == 1, words
            assert "where another sink writes" in refused.output, words
        assert world.ok("audit", "demo", "--deep") == ""


def test_staging_in_the_lake_of_another_pipeline_is_refused_too(make_world: Make) -> None:
    world = make_world()
    world.produce(20)
    world.ok("run", "demo")
    second(world, entry(world, "topic", str(world.lake / "staging")))
    assert "where another sink writes" in world.here("plan", "second").stderr


def test_links_and_names_that_begin_alike_are_told_apart(make_world: Make) -> None:
    world = make_world()
    world.settings["sinks"] = [entry(world, "files", "lake")]
    world.write_pipeline()
    world.produce(20)
    world.ok("run", "demo")
    (world.folder / "link").symlink_to(world.folder / "lake")
    second(world, entry(world, "files", "link/shop"))
    assert "where another sink writes" in world.here("run", "second").stderr
    second(world, entry(world, "files", "lake2"))
    world.ok("run", "second")
    assert world.ok("audit", "second") == world.ok("audit", "demo") == ""


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_folders_that_lie_in_each_other_since_an_earlier_version_are_known_to_every_audit(
    make_world: Make, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with postgres.temporary_database("catalog") as catalog:
        world = make_world(targets={"catalog": catalog})
        world.settings["sinks"] = [entry(world, "files", "lake")]
        world.write_pipeline()
        world.produce(20)
        world.ok("run", "demo")
        with monkeypatch.context() as patched:
            patched.setattr(preflight, "refuse_nested", lambda *_: None)
            second(world, entry(world, kind, "lake/shop"))
            world.ok("run", "second")
        for name in ("demo", "second"):
            assert world.ok("audit", name, "--deep") == ""
            assert world.json("repair", name, "--why", "a test", "--dry-run")["lines"] == []
        world.produce(20)
        world.ok("run", "demo")
        world.ok("run", "second", "--run-key", "two")


def test_a_file_of_no_manifest_in_a_root_that_lies_in_another_one_may_be_of_that(make_world: Make) -> None:
    """Its owner may be another database."""
    world = make_world()
    world.produce(20)
    world.ok("run", "demo")
    stray = world.lake / "raw" / "of-another.parquet"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"rows")
    assert f"{stray.relative_to(world.lake)} belongs to no manifest" in world.here("audit", "demo").stdout
    claim_in(open_store(str(world.lake.parent)), "another database")
    assert world.ok("audit", "demo") == ""


def sinks(tmp_path: Path, first: str, other: str) -> list[tuple[SinkSettings, SinkSettings]]:
    def at(place: str) -> list[SinkSettings]:
        context = LoadContext(tmp_path, tmp_path)
        iceberg = {"connection": "catalog", "table": "ns.rows", "warehouse": place}
        return [
            Files.model_validate({"root": place}, context=context),
            Delta.model_validate({"location": place}, context=context),
            Iceberg.model_validate(iceberg, context=context),
        ]

    return [(sink, beside) for sink in at(first) for beside in at(other)]


def test_places_are_compared_by_whole_names_in_folders_and_buckets(tmp_path: Path) -> None:
    for first, second_place in (
        ("lake", "lake2"),
        ("s3://bucket/lake", "s3://bucket/lake2"),
        ("s3://bucket/lake", "s3://other/lake/x"),
    ):
        assert not any(nested_folders(sink, "p", other, "q") for sink, other in sinks(tmp_path, first, second_place))
    for first, second_place in (
        ("lake", "lake/x"),
        ("s3://bucket/lake", "s3://bucket/lake/x"),
        ("s3://bucket", "s3://bucket/lake"),
    ):
        pairs = [pair for pair in sinks(tmp_path, first, second_place) if pair[0].kind != "iceberg"]
        assert all(nested_folders(sink, "p", other, "q") for sink, other in pairs)
        assert all(nested_folders(other, "q", sink, "p") for sink, other in pairs)


def test_a_prefix_of_a_bucket_knows_the_claims_around_and_in_it(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BUCKET", s3.connection())
    outer, inner, beside = (
        open_store(f"{s3.root}/{place}", {"connection": "bucket"}, from_environment)
        for place in ("lake", "lake/shop/deep", "lake2/shop")
    )
    assert [store.root for store in inner.around()][:2] == [f"{s3.root}/lake/shop", f"{s3.root}/lake"]
    claim_in(outer, "a database")
    assert claimed_around(inner) == outer.root
    assert claimed_around(beside) is None
    claim_in(inner, "a database")
    assert claimed_inside(key for key, _ in outer.list()) == {"shop/deep"}
