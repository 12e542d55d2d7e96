"""What is done is counted when it changes (docs/adr/0028): the sums are always what a count of all would say."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import psycopg
import pytest
from psycopg.types.json import Jsonb

from bench import planning
from bench.ledger import Explained
from tests.worlds.world import World
from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import NamedStatements
from tidemark.model.manifest import Manifest, ManifestState, RunKind
from tidemark.model.offsets import TopicPartition

NAME, SINKS = "demo", ("files", "table")
MANIFESTS = 6
STEPS = 100


@pytest.fixture
def run(database: str) -> Iterator[tuple[ManifestDatabase, list[int]]]:
    """The ids of planned manifests of a pipeline with two sinks."""
    with ManifestDatabase(database, "test") as manifests:
        with manifests.transaction():
            manifests.pipelines.remember(NAME, {name: f"the target of {name}" for name in SINKS})
            run_id = manifests.runs.insert(
                NAME, "one", RunKind.MANUAL, cut_at=None, reached=True, covered_by=[], notes=[]
            )  # fmt: skip
            ids = manifests.manifests.insert(run_id, NAME, MANIFESTS)
        yield manifests, ids


def publish(database: ManifestDatabase, manifest_id: int, attempt: int, sink: str, read: int) -> None:
    counts = {"read": read, "written": read - 1, "dead_lettered": 1}
    assert database.publications.publish(manifest_id, attempt, sink, attempt, "0" * 48, counts)


def finish(database: ManifestDatabase, manifest_id: int, read: int = 10) -> None:
    attempt = database.attempts.start(manifest_id, "fingerprint")
    assert attempt is not None
    for sink in SINKS:
        publish(database, manifest_id, attempt, sink, read)
    assert database.attempts.finish(manifest_id, attempt, SINKS)


class Life:
    """Draws what happens to the manifests of a pipeline."""

    def __init__(self, database: ManifestDatabase, ids: list[int]) -> None:
        self.database, self.ids = database, ids
        self.name, self.sinks = NAME, list(SINKS)
        self.draw = random.Random(18)

    def step(self) -> None:
        changes = [self.attempt] * 8 + [self.rename_sink, self.rename, self.add_up, self.late_rows]
        self.draw.choice(changes)()

    def done(self) -> list[Manifest]:
        manifests = self.database.manifests.find(ids=self.ids)
        return [manifest for manifest in manifests if manifest.state is ManifestState.DONE]

    def attempt(self) -> None:
        manifest_id = self.draw.choice(self.ids)
        attempt = self.database.attempts.start(manifest_id, "fingerprint")
        assert attempt is not None
        for sink in self.draw.sample(self.sinks, self.draw.randint(1, 2)):
            publish(self.database, manifest_id, attempt, sink, self.draw.randint(1, 9))
        if self.draw.random() < 0.7:
            self.database.attempts.finish(manifest_id, attempt, self.sinks[:1])  # the other one may lack it

    def rename_sink(self) -> None:
        new = f"sink{self.draw.randint(0, 10**9)}"
        with self.database.transaction():
            self.database.sinks.rename(self.name, self.sinks[0], new, {})
            self.database.sinks.end_rename(self.name, new)
        self.sinks[0] = new

    def rename(self) -> None:
        new = f"pipeline{self.draw.randint(0, 10**9)}"
        with self.database.transaction():
            self.database.pipelines.rename(self.name, new)
        self.name = new

    def add_up(self) -> None:
        self.database.manifests.add_up_sums(self.name)

    def late_rows(self) -> None:
        with self.database.transaction():
            self.database.session.execute(
                "INSERT INTO hour (pipeline, hour, late) VALUES (%s, '2024-01-01T00:00Z', %s) "
                "ON CONFLICT (pipeline, hour) DO UPDATE SET late = EXCLUDED.late",
                [self.name, self.draw.randint(0, 9)],
            )


def test_the_sums_are_those_of_a_count_after_each_change(run: tuple[ManifestDatabase, list[int]]) -> None:
    database, ids = run
    life = Life(database, ids)
    lacked = 0
    for _ in range(STEPS):
        life.step()
        assert not database.audits.wrong_sums(life.name)
        done = life.done()
        for sink in life.sinks:
            lacking = [manifest.id for manifest in done if sink in manifest.unfilled]
            assert (
                database.publications.lacking(life.name, sink),
                database.publications.count_lacking(life.name, sink),
            ) == (
                lacking,
                len(lacking),
            )
            lacked += len(lacking)
        counted = database.manifests.states(life.name).get(ManifestState.DONE, {"manifests": 0})
        assert counted["manifests"] == len(done)
    assert done
    assert lacked, "a sink lacked some"


def test_manifests_that_end_while_others_add_the_sums_up_are_counted_once(
    run: tuple[ManifestDatabase, list[int]], database: str
) -> None:
    _, first = run
    with ManifestDatabase(database, "test") as planner, planner.transaction():
        run_id = planner.runs.insert(NAME, "two", RunKind.MANUAL, cut_at=None, reached=True, covered_by=[], notes=[])
        ids = [*first, *planner.manifests.insert(run_id, NAME, 60)]

    def work(own: list[int]) -> None:
        with ManifestDatabase(database, "test") as session:
            for manifest_id in own:
                finish(session, manifest_id)
                session.manifests.add_up_sums(NAME)
                assert not session.audits.wrong_sums(NAME)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [ids[number::4] for number in range(4)]))
    with ManifestDatabase(database, "test") as reader:
        reader.manifests.add_up_sums(NAME)
        assert reader.manifests.states(NAME)[ManifestState.DONE]["manifests"] == len(ids)
        assert reader.publications.sums(NAME) == {"read": 660, "written": 594, "dead_lettered": 66}
        rows = reader.session.execute("SELECT sink, manifests FROM done_sum ORDER BY sink NULLS FIRST").fetchall()
    assert [(row["sink"], row["manifests"]) for row in rows] == [(None, 66), ("files", 66), ("table", 66)]


def test_a_change_that_is_not_committed_is_not_counted(run: tuple[ManifestDatabase, list[int]]) -> None:
    database, [first, *_] = run
    with database.session.transaction(force_rollback=True):
        finish(database, first)
        assert database.manifests.states(NAME)[ManifestState.DONE]["manifests"] == 1
    assert ManifestState.DONE not in database.manifests.states(NAME)
    assert not database.audits.wrong_sums(NAME)


def test_sums_that_somebody_made_wrong_are_told_by_the_audit_which_says_how_to_count_again(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    assert world.ok("audit", "demo") == ""
    with psycopg.connect(world.dsn, autocommit=True, options="-c search_path=tidemark") as sql:
        sql.execute("SET session_replication_role = replica")
        sql.execute("UPDATE publication SET counts = counts || %s", [Jsonb({"stale": 0})])
        assert world.ok("audit", "demo") == "", "that is in no sum"
        sql.execute("DELETE FROM done_sum WHERE sink IS NOT NULL")
        refused = world.here("audit", "demo")
        assert refused.exit_code == 1
        assert "the stored sums of done manifests, which lists and gauges show, are not what" in refused.stdout
        [statement] = [line.partition("count again: ")[2] for line in refused.stdout.splitlines()]
        sql.execute(statement)  # type: ignore[arg-type]
    assert world.ok("audit", "demo") == ""


def test_what_counts_and_what_looks_for_gaps_reads_no_table_of_the_history(database: str) -> None:
    partitions, manifests = 2, 3_000
    with ManifestDatabase(database, "test") as sums:
        with sums.transaction():
            sums.pipelines.remember(planning.NAME, {"files": "a lake"})
            sums.chains.insert(planning.NAME, [TopicPartition("t", "id", number) for number in range(partitions)])
        planning.fill(database, partitions, manifests)
        sums.session.execute("SELECT count_done()")
        calls: dict[str, Callable[[], object]] = {
            "states": lambda: sums.manifests.states(planning.NAME)[ManifestState.DONE]["manifests"],
            "published_sums": lambda: sums.publications.sums(planning.NAME)["read"],
            "sums_of_hours": lambda: sums.hours.sums(planning.NAME)["late"],
            "count_lacking": lambda: sums.publications.count_lacking(planning.NAME, "files"),
            "lacking": lambda: sums.publications.lacking(planning.NAME, "files"),
            "unpublished_parts": lambda: sums.ranges.unpublished(planning.NAME, ["files"], None),
            "undone": lambda: sums.manifests.undone(planning.NAME),
        }
        explained = Explained()
        answers = {}
        with mock.patch.object(
            NamedStatements, "rows", lambda self, name, **values: explained.rows(self, name, **values)
        ):
            for name, ask in calls.items():
                with explained.of() as cost:
                    answers[name] = ask()
                assert (cost.whole_tables, cost.sum < 60) == (set(), True), (name, cost)
    assert answers == {
        "states": manifests,
        "published_sums": manifests * partitions * planning.RANGE_RECORDS,
        "sums_of_hours": 0,
        "count_lacking": 0,
        "lacking": [],
        "unpublished_parts": [],
        "undone": [],
    }
