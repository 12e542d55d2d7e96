"""The place for transforms in the one pass, between decoder and event time: shown by the toy, with real manifests.

A pipeline file cannot name the toy, so the order gets it here.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.toys.toy_transform.transform import ToyTransform
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World
from tidemark.errors import Blocked, ConfigurationError
from tidemark.kinds import TRANSFORMS
from tidemark.lifecycle.attempt import Stage, process
from tidemark.lifecycle.publish import Outcome
from tidemark.model.manifest import Counts, ManifestState
from tidemark.model.order import Order, SourceOrder, TransformOrder
from tidemark.model.receipt import Receipt
from tidemark.transforms.base import Transformed

MakeWorld = Callable[..., World]
ONE_SLICE = {"kafka": {"slice": {"max_records": 1000}}}


@pytest.fixture(autouse=True)
def _the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSFORMS, "toy", "tests.toys.toy_transform")


def staged_with(*options: dict[str, Any]) -> Stage:
    """Stages an order through toys with these options."""

    def stage(order: Order) -> Receipt:
        assert order.transforms == ()
        return arrow_stage(replace(order, transforms=tuple(TransformOrder("toy", toy) for toy in options)))

    return stage


def done(world: World, stage: Stage, *, replay: bool = False) -> Outcome:
    """The world's only manifest."""
    context = world.context()
    [manifest] = context.database.manifests.find("demo")
    return process(context, manifest.id, stage, replay=replay)


def rows(world: World, columns: str, *, dead_letters: bool = False) -> list[tuple[Any, ...]]:
    paths = [str(path) for path in world.data_paths(*(["--dead-letters"] if dead_letters else []))]
    return duckdb.sql(f"SELECT {columns} FROM read_parquet({paths}) ORDER BY ALL").fetchall()


def partition_counts(world: World) -> list[tuple[int, ...]]:
    """(partition, read, decoded, dead-lettered, filtered, deduplicated) as the published attempt measured them."""
    database = world.context().database
    [manifest] = database.manifests.find("demo")
    receipt = database.attempts.receipt(manifest.id, manifest.publications[0].attempt)
    assert receipt is not None
    return [
        (
            partition.partition,
            partition.read,
            partition.decoded,
            partition.dead_lettered,
            partition.filtered,
            partition.deduplicated,
        )
        for partition in receipt.partitions
    ]


def test_rows_that_a_transform_takes_away_are_counted_and_the_dead_letters_stay(make_world: MakeWorld) -> None:
    world = make_world(settings=ONE_SLICE)
    world.produce(60, bad_every=7)  # 9 dead letters: numbers 0, 7, .. 56
    world.ok("plan", "demo")
    counts = done(world, staged_with({"every": 3})).counts
    kept = [n for n in range(60) if n % 7 and (n // 2) % 3]  # two partitions: the offset of number n is n // 2
    assert rows(world, "n") == [(n,) for n in kept]
    assert rows(world, "_partition, _offset", dead_letters=True) == sorted((n % 2, n // 2) for n in range(0, 60, 7))
    assert counts == Counts(60, 0, len(kept), dead_lettered=9, filtered=51 - len(kept), unknown_fields=51)
    assert world.ok("audit", "demo", "--deep") == ""
    bad = [sum(1 for n in range(0, 60, 7) if n % 2 == at) for at in (0, 1)]
    taken = [sum(1 for n in range(60) if n % 2 == at and n % 7 and (n // 2) % 3 == 0) for at in (0, 1)]
    assert partition_counts(world) == [(at, 30, 30 - bad[at], bad[at], taken[at], 0) for at in (0, 1)]


def test_transforms_run_one_after_the_other_and_each_counts_what_it_took(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings=ONE_SLICE)
    world.produce(30)
    world.send(*[json.dumps({"n": 100, "at": "2024-03-01T00:00:00Z", "name": "r1"})] * 5)
    world.ok("plan", "demo")
    counts = done(world, staged_with({"every": 2}, {"every": 3, "once": "name"})).counts
    # The first leaves the odd offsets: 15 of the produced, 31 and 33 of the repeated. Of those the second takes
    # 3, 9, 15, 21, 27 and 33, and 31, whose name came with offset 1.
    assert (counts.written, counts.filtered, counts.deduplicated) == (10, 18 + 6, 1)
    assert rows(world, "_offset") == [(at,) for at in range(30) if at % 2 and at % 3]


def test_a_tombstone_keeps_its_mark_whatever_was_taken_away_before_it(make_world: MakeWorld) -> None:
    decode = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL", "tombstones": ["n"]}
    world = make_world(partitions=1, settings={**ONE_SLICE, "decode": decode})
    for n in range(12):
        content = None if n % 4 == 3 else json.dumps({"n": n, "at": f"2024-03-01T{n:02d}:00:00Z"})
        world.send(content, key=json.dumps({"n": n}).encode())
    world.ok("plan", "demo")
    counts = done(world, staged_with({"every": 2})).counts
    assert rows(world, '_offset, n, _is_deleted, "at" IS NULL') == [
        (at, at, at % 4 == 3, at % 4 == 3) for at in range(1, 12, 2)
    ]
    assert (counts.written, counts.filtered) == (6, 6)


def test_a_manifest_of_which_nothing_is_left_is_done_without_objects(make_world: MakeWorld) -> None:
    world = make_world(settings=ONE_SLICE)
    world.produce(20)
    world.ok("plan", "demo")
    assert done(world, staged_with({"every": 1})).counts == Counts(20, 0, 0, filtered=20, unknown_fields=20)
    assert [key for key in world.object_keys() if "/_" not in key] == ["_manifests/demo/0000000001.0001.json"]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_record_without_a_usable_time_is_no_dead_letter_when_it_was_filtered(make_world: MakeWorld) -> None:
    decode = {"format": "json", "schema": "n BIGINT NOT NULL, at STRING"}
    world = make_world(partitions=1, settings={**ONE_SLICE, "decode": decode})
    world.send(*[json.dumps({"n": n, "at": "2024-03-01T00:00:00Z" if n > 3 else "soon"}) for n in range(8)])
    world.ok("plan", "demo")
    counts = done(world, staged_with({"every": 2})).counts
    assert (counts.written, counts.dead_lettered, counts.filtered) == (2, 2, 4)
    assert rows(world, "_offset", dead_letters=True) == [(1,), (3,)]


def test_the_same_rows_come_of_a_replay_and_other_rows_of_another_transform(make_world: MakeWorld) -> None:
    world = make_world(settings=ONE_SLICE)
    world.produce(40)
    world.ok("plan", "demo")
    endings = [done(world, staged_with({"every": every}), replay=True).ending for every in (5, 5, 4)]
    assert endings == ["published", "unchanged", "published"]
    assert len(rows(world, "n")) == 30


@pytest.mark.parametrize("forgets", ["kept", "filtered"])
def test_a_transform_that_loses_a_row_silently_blocks_the_manifest(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, forgets: str
) -> None:
    world = make_world(partitions=1, settings=ONE_SLICE)
    world.produce(20)
    world.ok("plan", "demo")
    whole = ToyTransform.apply

    def apply(self: ToyTransform, batch: pa.RecordBatch) -> Transformed:
        made = whole(self, batch)
        if forgets == "filtered":
            return replace(made, filtered=made.filtered[1:])
        return replace(made, rows=made.rows.slice(1), kept=made.kept[1:])

    monkeypatch.setattr(ToyTransform, "apply", apply)
    with pytest.raises(Blocked, match=r"a defect of a decoder, a transform or the sink"):
        done(world, staged_with({"every": 3}))
    [manifest] = world.context().database.manifests.find("demo")
    assert manifest.state is ManifestState.BLOCKED
    assert world.exact() == {}


def test_an_order_with_a_transform_that_nobody_has_registered_is_refused(make_world: MakeWorld) -> None:
    world = make_world(settings=ONE_SLICE)
    world.produce(4)
    world.ok("plan", "demo")

    def stage(order: Order) -> Receipt:
        return arrow_stage(replace(order, transforms=(TransformOrder("toi", {}),)))

    with pytest.raises(ConfigurationError, match=r"no transform of kind 'toi'"):
        done(world, stage)


def test_an_order_keeps_its_transforms_as_json_in_their_order() -> None:
    transforms = (TransformOrder("toy", {"every": 3}), TransformOrder("toy", {"every": 2, "once": "name"}))
    order = Order("demo", 1, 1, (), SourceOrder("kafka", {}), {}, {}, "fail", (), transforms)
    assert Order.from_json(order.to_json()) == order
