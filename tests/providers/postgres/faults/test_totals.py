"""What a reader in SQL sees of totals: right after a kill, and while manifests change the same totals at once."""

import json
import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.faults.attempts_at_once import retried_and_replayed_at_once
from tests.faults.documented_kills import AT_EACH_POINT_IN_EITHER_DATABASE, killed_and_done_again, table
from tests.worlds.totals_world import TotalsWorld
from tests.worlds.world import wait_ended, wait_stopped, wake
from tidemark.failpoints import FAILPOINTS

SEEN = table("### A table")
Make = Callable[..., TotalsWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}


@AT_EACH_POINT_IN_EITHER_DATABASE
def test_killed_for_the_first_time_a_reader_of_totals_sees_what_the_table_says(
    make_totals_world: Make, point: str, same: bool
) -> None:
    world = make_totals_world(same=same, settings=ONE_MANIFEST)
    seen, published = killed_and_done_again(world, point, world.rows, lambda: world.latest(world.everything()))
    assert seen == SEEN[point][same]
    again = SEEN[point][2].startswith("attempt 2 does") or (point == "publish.before_mark" and same)
    assert published == (2 if again else 1)


@pytest.mark.parametrize("point", ["publish.before_record", "publish.marked"])
def test_killed_while_its_contributions_are_replaced_totals_are_the_old_or_the_new_ones(
    make_totals_world: Make, point: str
) -> None:
    world = make_totals_world(settings=ONE_MANIFEST)
    world.produce(60)
    world.ok("run", "demo")
    before = world.rows()
    world.settings["transform"] = [{"filter": "k <> 3"}]
    world.write_pipeline()
    killed = world.tidemark("replay", "demo", "--manifest", "1", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    after = {key: row for key, row in before.items() if key[0] != 3}
    assert world.rows() == (before if point == "publish.before_record" else after)
    world.ok("replay", "demo", "--manifest", "1")
    assert world.rows() == after
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("same", [False, True])
def test_manifests_that_change_the_same_totals_at_once_wait_for_each_other(make_totals_world: Make, same: bool) -> None:
    world = make_totals_world(same=same)
    world.produce(160)
    assert retried_and_replayed_at_once(world) == 4
    world.assert_complete()


def test_a_manifest_that_is_combined_again_misses_nothing_of_one_that_is_added_meanwhile(
    make_totals_world: Make,
) -> None:
    """The new one holds its totals until it commits; the replay waits for them, and then combines."""
    world = make_totals_world(settings=ONE_MANIFEST)
    world.produce(60)
    world.ok("run", "demo", "--run-key", "one")
    world.damage({"id": 1})
    world.produce(60)
    world.ok("plan", "demo", "--run-key", "two")
    adding = world.start("retry", "demo", "--manifest", "2", failpoint="publish.before_record:stop")
    wait_stopped(adding)
    replaying = world.start("replay", "demo", "--manifest", "1")
    with pytest.raises(Exception, match="timed out"):
        replaying.communicate(timeout=3)
    woken = wake(adding)
    assert woken.returncode == 0, woken.stderr
    ended = wait_ended(replaying)
    assert ended.returncode == 0, ended.stderr
    world.assert_complete()


EXAMPLES = Path(__file__).parents[4] / "include" / "pipelines" / "examples"
IN_TURN = [
    pytest.param(points, marks=() if quick else pytest.mark.exhaustive)
    for quick, points in ((True, ("stage.done", "publish.before_mark")), (False, FAILPOINTS))
]


@pytest.mark.parametrize("points", IN_TURN)
def test_two_examples_in_a_row_count_every_order_once_though_each_is_killed_at_every_step(
    make_totals_world: Make, points: tuple[str, ...]
) -> None:
    """One example writes the topic that the other one counts."""
    world = make_totals_world()
    clean = f"{world.topic}-clean"
    world.broker.create_topic(clean, 2, {"retention.ms": "-1"})
    world.targets["kafka_default"] = json.dumps(
        {"conn_type": "kafka", "extra": {"bootstrap.servers": world.broker.bootstrap_servers}}
    )
    (world.pipelines / "demo.yaml").unlink()
    for name in ("orders_to_topic", "orders_per_product"):
        text = (EXAMPLES / f"{name}.yaml").read_text()
        topics = text.replace("orders_clean", clean).replace("topics: [orders]", f"topics: [{world.topic}]")
        (world.pipelines / f"{name}.yaml").write_text(topics)
    orders = 0
    for point in points:
        world.send(*(order(number) for number in range(orders, orders + 20)))
        orders += 20
        for name in ("orders_to_topic", "orders_per_product"):
            home = {"TIDEMARK_HOME": str(world.folder / name)}  # where a failpoint acts once
            killed = world.tidemark("run", name, "--run-key", point, failpoint=f"{point}:kill9", env=home)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            for command in (("retry", name), ("run", name, "--run-key", point)):
                done = world.tidemark(*command, env=home)
                assert done.returncode == 0, done.stderr
    rows = world.query(
        "SELECT product_id, sum(orders)::int AS orders, sum(revenue) AS revenue, min(cheapest) AS cheapest, "
        "sum(price_count)::int AS priced FROM orders_per_product GROUP BY 1 ORDER BY 1"
    )
    expected = {product: [price(number) for number in range(product, orders, 7)] for product in range(7)}
    assert [tuple(row.values()) for row in rows] == [
        (product, len(prices), sum(prices), min(prices), len(prices)) for product, prices in expected.items()
    ]
    for topic in (clean, f"{clean}-markers"):
        world.broker.delete_topic(topic)


def order(number: int) -> str:
    when = f"2024-03-01T{number % 24:02d}:30:00Z"
    fields = f'"order_id": {number}, "product_id": {number % 7}, "customer": "c", "price": {price(number)}'
    return f'{{{fields}, "ordered_at": "{when}"}}'


def price(number: int) -> Decimal:
    return Decimal(number * 10 + 5) / 100
