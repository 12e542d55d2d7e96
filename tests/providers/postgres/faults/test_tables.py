"""What a reader in SQL sees of a table: right after a kill, while merges run, and when two want the same rows."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
import pytest
from psycopg import IsolationLevel

from sandbox.services.processes import wait_until
from tests.faults.attempts_at_once import retried_and_replayed_at_once
from tests.faults.documented_kills import AT_EACH_POINT_IN_EITHER_DATABASE, killed_and_done_again, table
from tests.worlds.table_world import ROWS, TableWorld
from tests.worlds.world import Place, wait_ended
from tidemark.failpoints import FAILPOINTS

PUBLISHED = "SELECT manifest_id FROM tidemark.publication WHERE sink = 'postgres'"
SEEN = table("### A table")
MakeTableWorld = Callable[..., TableWorld]


@AT_EACH_POINT_IN_EITHER_DATABASE
def test_killed_for_the_first_time_a_reader_in_sql_sees_what_the_table_says(
    make_table_world: MakeTableWorld, point: str, same: bool
) -> None:
    world = make_table_world(same=same, settings={"kafka": {"slice": {"max_records": 1000}}})
    seen, published = killed_and_done_again(world, point, world.rows, lambda: world.latest(world.everything()))
    assert seen == SEEN[point][same]
    again = SEEN[point][2].startswith("attempt 2 does") or (point == "publish.before_mark" and same)
    assert published == (2 if again else 1)


@pytest.mark.parametrize("same", [False, True])
def test_G8_merges_of_the_same_keys_at_once_wait_for_each_other(make_table_world: MakeTableWorld, same: bool) -> None:
    world = make_table_world(same=same)
    world.produce(160)
    assert retried_and_replayed_at_once(world) == 4
    world.assert_complete()


def test_G8_a_merge_that_postgresql_breaks_off_to_end_a_deadlock_is_done_again(
    make_table_world: MakeTableWorld,
) -> None:
    """Another session has the last key and wants the first one, which the merge has."""
    world = make_table_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(40)
    world.ok("run", "demo")
    world.produce(40)
    world.execute(f"ALTER DATABASE {world.targets['warehouse'].rpartition('/')[2]} SET deadlock_timeout = '3s'")
    with psycopg.connect(world.targets["warehouse"]) as other:
        other.execute("SET deadlock_timeout = '60s'")  # so that it is the merge that notices
        other.execute("UPDATE public.latest SET name = name WHERE k = 8")
        merging = world.start("run", "demo")
        wait_until(lambda: waiting(world), "the merge to wait for the last key", timeout=30, interval=0.01)
        other.execute("UPDATE public.latest SET name = name WHERE k = 0")
        other.commit()
    ended = wait_ended(merging)
    assert ended.returncode == 0, ended.stderr
    # the next try of the merge may be faster than the other session, and be broken off once more
    wait_until(lambda: deadlocks(world) >= 1, "PostgreSQL to count its deadlocks", timeout=60)
    world.assert_complete()


def waiting(world: TableWorld) -> bool:
    """Whether a session waits for a lock."""
    return bool(
        world.query("SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
    )


def deadlocks(world: TableWorld) -> int:
    [row] = world.query("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(row["deadlocks"])


def snapshot(world: TableWorld) -> tuple[dict[int, tuple[int, Place]], Counter[Place], set[int]]:
    """In one snapshot: the rows, the offsets that markers cover, and the manifests with a marker."""
    with psycopg.connect(world.targets["warehouse"]) as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        stored = connection.execute(ROWS).fetchall()
        markers = connection.execute("SELECT manifest, record FROM tidemark_target.marker").fetchall()
        published = set(connection.execute(PUBLISHED).fetchall()) if world.targets["warehouse"] == world.dsn else None
    covered = Counter(
        (span["at"]["topic"], span["at"]["partition"], offset)
        for _, record in markers
        for span in record["ranges"]
        for offset in range(span["start"], span["end"])
    )
    merged = {manifest for manifest, _ in markers}
    assert published is None or published == {(manifest,) for manifest in merged}, (
        "rows and publication are one transaction"
    )
    rows = {k: (n, (topic, partition, offset)) for k, n, topic, partition, offset in stored}
    return rows, covered, merged


def published(world: TableWorld) -> set[int]:
    with psycopg.connect(world.dsn) as connection:
        return {manifest for [manifest] in connection.execute(PUBLISHED)}


@dataclass
class SqlReader:
    """Takes snapshots until it is ``over``; ``wrong`` is what it saw that nobody may see."""

    world: TableWorld
    samples: int = 0
    wrong: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.01) and not self.wrong:
            try:
                self.look()
            except Exception as error:
                self.wrong.append(repr(error))

    def look(self) -> None:
        before = published(self.world)
        rows, covered, merged = snapshot(self.world)
        self.samples += 1
        assert rows == self.world.latest(covered), "not the rows of whole manifests"
        assert before <= merged, "a publication is ahead of its rows"


SEEDS = [
    (1, True),
    *(
        pytest.param(seed, same, marks=pytest.mark.exhaustive)
        for seed, same in ((2, True), (3, True), (1, False), (2, False))
    ),
]


@pytest.mark.parametrize(("seed", "same"), SEEDS)
def test_a_reader_in_sql_that_looks_all_the_time_sees_each_manifest_whole_and_published(
    make_table_world: MakeTableWorld, seed: int, same: bool
) -> None:
    world = make_table_world(same=same)
    world.produce(20)
    world.ok("run", "demo")
    reader = SqlReader(world)
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        dice = random.Random(seed)
        for number in range(4):
            world.produce(60)
            point = dice.choice([point for point in FAILPOINTS if point.startswith(("stage", "publish"))])
            killed = world.tidemark(
                *("run", "demo", "--run-key", str(number)),
                failpoint=f"{point}:kill9@{dice.randint(1, 2)}",
                env={"TIDEMARK_HOME": str(world.folder / f"home-{number}")},  # a failpoint acts once in each
            )
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            world.ok("retry", "demo")
            world.ok("run", "demo", "--run-key", str(number))
    finally:
        reader.over.set()
        thread.join()
    assert reader.wrong == []
    assert reader.samples > 40, "ten in each round, also on a busy machine"
    world.assert_complete()
