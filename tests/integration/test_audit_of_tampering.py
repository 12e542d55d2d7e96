"""What the audit says when somebody went behind the constraints: in the database, or in files and all that tells of
them at once. Each is one line that names what is wrong and what to do, and what it says to do helps."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.types.json import Jsonb

from tests.worlds.file_of_rows import file_of
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World
from tidemark.airflow.page.state_words import ManifestWords
from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.in_target import record_of
from tidemark.model.manifest import Counts
from tidemark.operations.status import State, status
from tidemark.paths import ObjectName, RecordName

MakeWorld = Callable[..., World]
MakeTableWorld = Callable[..., TableWorld]
REPLAY = "next: tidemark replay demo --manifest 2"
COUNTS = Counts(read=10, invisible=2, written=8, dead_lettered=2, unknown_fields=8)
KEY = "raw/{topic}/2024/03/01/"
UNPUBLISHED = ("run", "demo"), "publish.before_record:kill9"
MERGED = ("run", "demo"), "publish.before_mark:kill9"
BY_HAND = "no replay removes rows, so first delete those that were inserted by hand; " + REPLAY
STAGED = ("replay", "demo", "--manifest", "2"), "publish.marked:kill9"


@dataclass(frozen=True)
class Case:
    """``line`` is all that the audit says; ``first`` is SQL a person runs before following its advice."""

    tamper: Callable[[Any], None]
    line: str
    deep: bool = False  # whether it takes --deep to see it
    first: str = ""
    more: tuple[str, ...] = ()  # lines of other manifests that are hit too, or of what else is left
    advised: tuple[str, ...] = ()  # what the line means, where it names no command for it


def change(world: World, statement: str, *values: object, dsn: str = "") -> None:
    """SQL by a superuser with triggers asleep, and the checks of foreign keys with them; the sums are made right."""
    with psycopg.connect(dsn or world.dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(statement, values or None)
        if not dsn:
            connection.execute("SELECT tidemark.count_done()")


def sql(statement: str) -> Callable[[World], None]:
    return lambda world: change(world, statement)


def in_table(statement: str) -> Callable[[TableWorld], None]:
    return lambda world: world.execute(statement)


def counted(**terms: int) -> Case:
    """The counts of a publication with one term more."""
    [(term, number)] = terms.items()
    difference = f"counts of sink files do not add up to its 12 offsets: {replace(COUNTS, **terms)}"
    statement = f"UPDATE tidemark.publication SET counts = counts || '{{\"{term}\": {number}}}' WHERE manifest_id = 2"
    return Case(sql(statement), f"manifest 2: {difference}; {REPLAY}")


def dying(words: tuple[str, ...], failpoint: str) -> Callable[[World], None]:
    """One more record, and an attempt that dies."""

    def tamper(world: World) -> None:
        world.produce(1)
        assert world.tidemark(*words, failpoint=failpoint).returncode < 0

    return tamper


def dying_in_a_replay(world: TableWorld) -> None:
    world.execute("DELETE FROM public.latest WHERE _manifest_id = 2")  # else the replay finds its rows and merges none
    assert world.tidemark("replay", "demo", "--manifest", "2", failpoint="publish.before_mark:kill9").returncode < 0


def forget_all_of_it(world: World) -> None:
    change(world, "DELETE FROM tidemark.publication WHERE manifest_id = 2")
    for path in world.lake.rglob("0000000002*"):
        path.unlink()


def pad(world: World) -> None:
    """A file of the same size with one row: what is missing is filled up before its footer."""
    path = world.lake / first_object(world)
    size = path.stat().st_size
    pq.write_table(pq.read_table(path, partitioning=None).slice(0, 1), path, compression="zstd", use_dictionary=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:footer] + bytes(size - len(content)) + content[footer:])


def first_object(world: World) -> str:
    return f"{KEY.format(topic=world.topic)}02/{ObjectName(2, 1, (0, 20, 32), 0, 'parquet')}"


def rewritten(changed: Callable[[pa.Table], pa.Table]) -> Callable[[World], None]:
    """Other rows in a file of manifest 2; its receipt, publication and record say that just these were written."""

    def tamper(world: World) -> None:
        context = world.context()
        [sink] = context.sinks
        path = world.lake / first_object(world)
        rows = changed(pq.read_table(path, partitioning=None))
        content, digest = file_of(rows)
        path.write_bytes(content)
        receipt = context.database.attempts.receipt(2, 1)
        assert receipt is not None
        [forged] = [object_ for object_ in receipt.objects if object_.path == first_object(world)]
        others = [object_ for object_ in receipt.objects if object_ != forged]
        forged = replace(forged, rows=rows.num_rows, bytes=path.stat().st_size, digest=str(digest))
        receipt = replace(receipt, objects=(forged, *others))
        change(world, "UPDATE tidemark.attempt SET receipt = %s WHERE manifest_id = 2", Jsonb(asdict(receipt)))
        change(world, "UPDATE tidemark.publication SET digest = %s WHERE manifest_id = 2", receipt.digest("files"))
        record = record_of(sink, receipt, context.database.manifests.get(2).ranges, context.database.id())
        sink.output.write_record(RecordName("demo", 2, 1), record)

    return tamper


def doubled(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def moved(offset: int) -> Callable[[pa.Table], pa.Table]:
    """The first row claims to be of another offset."""

    def changed(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("_offset")
        offsets = pa.array([offset, *rows["_offset"].to_pylist()[1:]], pa.int64())
        return rows.set_column(at, rows.schema.field(at), offsets)

    return changed


OF_A_LAKE = {
    "a range that was shifted": Case(
        sql("ALTER TABLE tidemark.manifest_range DROP CONSTRAINT range_no_gap; UPDATE tidemark.manifest_range "
            "SET start_offset = start_offset + 1, end_offset = end_offset + 1 WHERE manifest_id = 2"),
        "rows are gone from the table manifest_range of the manifest database: offsets [20, 21) of {topic}-0; Tidemark "
        "deletes none, so somebody did, with triggers off; next: tidemark db adopt demo --why TEXT, which reads back "
        "what the records in the targets say; what it refuses is mended by a copy of the database alone: restore one, "
        "and then adopt",
        advised=("audit demo",),
        first="UPDATE tidemark.manifest_range SET start_offset = 20, end_offset = 32 WHERE manifest_id = 2; "
        "ALTER TABLE tidemark.manifest_range ADD CONSTRAINT range_no_gap FOREIGN KEY (chain_id, start_offset) "
        "REFERENCES tidemark.manifest_range (chain_id, end_offset) DEFERRABLE INITIALLY DEFERRED",
    ),
    "more invisible offsets than there are": counted(invisible=3),
    "records that went nowhere": counted(filtered=1),
    "a publication that is gone, with its output": Case(
        forget_all_of_it, f"manifest 2: is done without a publication; {REPLAY}"
    ),
    "a publication of other rows": Case(
        sql(f"UPDATE tidemark.publication SET digest = '{'0' * 48}' WHERE manifest_id = 2"),
        f"manifest 2: the receipt of attempt 1 is not what was published; {REPLAY}",
    ),
    "objects that were never published": Case(
        dying(*UNPUBLISHED),
        f"manifest 3: {KEY}03/{ObjectName(3, 1, (0, 32, 33), 0, 'parquet')} was left by an attempt that is not "
        "published; next: tidemark retry demo",
    ),
    "a file of the same size with fewer rows": Case(
        pad,
        f"manifest 2: a file has 1 row instead of 5: {KEY}02/{ObjectName(2, 1, (0, 20, 32), 0, 'parquet')}; {REPLAY}",
    ),
    "a record twice": Case(
        rewritten(doubled), f"manifest 2: 1 record twice, first {{topic}}-0 offset 22; {REPLAY}", deep=True
    ),
    "a record of another manifest": Case(
        rewritten(moved(19)), f"manifest 2: 1 record of other ranges, first {{topic}}-0 offset 19; {REPLAY}", deep=True
    ),
    "a record that is missing": Case(
        rewritten(lambda rows: rows.slice(1)), f"manifest 2: 9 records where 10 were published; {REPLAY}", deep=True
    ),
    "a record where there was none": Case(
        rewritten(moved(21)),
        f"manifest 2: 1 record at offsets where none was read, first {{topic}}-0 offset 21; {REPLAY}",
        deep=True,
    ),
}  # fmt: skip

OF_A_TABLE = {
    "staging of an attempt that died": Case(
        dying(*STAGED), "manifest 2: staging was left by an attempt that died; next: tidemark retry demo"
    ),
    "a row too many": Case(
        in_table("INSERT INTO public.latest (k, n, at, _topic, _partition, _offset, _manifest_id, _is_deleted, "
                 "_log_generation, _attempt) SELECT 77, n, at, _topic, _partition, _offset, _manifest_id, _is_deleted, "
                 "_log_generation, _attempt FROM public.latest WHERE k = 2"),
        f"manifest 2: the table has 8 rows of it where 7 were merged; {BY_HAND}",
        deep=True, first="DELETE FROM public.latest WHERE k = 77",
    ),
    "a row of another offset": Case(
        in_table("UPDATE public.latest SET _offset = 999 WHERE k = 2"),
        "manifest 2: the table has rows of it from {topic}-0 offsets 9 to 999, which it does not cover; " + BY_HAND,
        deep=True, first="DELETE FROM public.latest WHERE _offset = 999",
    ),
    "a row of an attempt that is not published": Case(
        in_table("UPDATE public.latest SET _attempt = 2 WHERE k = 2"),
        "manifest 2: the table has rows of attempt 2, published is attempt 1; next: tidemark retry demo",
        deep=True, first="UPDATE public.latest SET _attempt = 1",
    ),
    "rows that were taken away": Case(
        in_table("DELETE FROM public.latest WHERE k > 4"),
        f"manifest 2: the table has 5 rows in all, and this manifest had 7 keys: rows were taken away; {REPLAY}",
        deep=True,
        more=(("manifest 1: the table has 5 rows in all, and this manifest had 9 keys: rows were taken away; "
              "next: tidemark replay demo --manifest 1"),),
    ),
    "the table itself": Case(
        in_table("DROP TABLE public.latest"),
        "connection warehouse, table public.latest does not exist any more; published there: 2 manifests of sink "
        "postgres of pipeline demo; next: check that it is the right one; if it was restored, or cannot be: "
        "tidemark db adopt demo --why TEXT",
        advised=("db adopt demo --why a-test", "replay demo --manifest 1", "replay demo --manifest 2"),
    ),
    "rows of an attempt that died before its mark": Case(
        dying(*MERGED),
        "manifest 3: connection warehouse, table public.latest shows attempt 1, which is whole and not published: "
        "it died before that; "
        "next: tidemark retry demo",
    ),
    "rows of a replay that died before its mark": Case(
        dying_in_a_replay,
        "manifest 2: connection warehouse, table public.latest shows attempt 2, which is whole and not published: "
        "it died before that; "
        "next: tidemark retry demo",
        more=("manifest 2: staging was left by an attempt that died; next: tidemark retry demo",),
    ),
    "dead letters that are gone": Case(
        in_table("DELETE FROM tidemark_target.dead_letter WHERE _manifest_id = 2"),
        f"manifest 2: 0 dead letters are kept where 2 were; {REPLAY}",
        deep=True,
    ),
}  # fmt: skip


@pytest.fixture
def lake(make_world: MakeWorld) -> World:
    """Manifest 1 covers [0, 20), manifest 2 [20, 32): a gap of two offsets, then ten records, two of them bad."""
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions"}})
    world.hours = 5
    world.produce(20)
    world.ok("run", "demo")
    world.transact("never seen", commit=False)
    world.produce(10, bad_every=7)
    world.ok("run", "demo")
    assert world.chain()[1:] == [(0, "data", 0, 20), (0, "data", 20, 32)]
    return world


@pytest.fixture
def table(make_table_world: MakeTableWorld) -> TableWorld:
    """Two manifests of nine records, one of each key; of the second two are bad."""
    world = make_table_world(partitions=1)
    world.produce(9)
    world.ok("run", "demo")
    world.produce(9, bad_every=5)
    world.ok("run", "demo")
    return world


def judge(world: World, case: Case, dsn: str) -> None:
    """Clean before, one line after, and clean again when somebody has done what the line says."""
    assert world.ok("audit", "demo") == world.ok("audit", "demo", "--deep") == ""
    case.tamper(world)
    line = case.line.format(topic=world.topic)
    shallow, deep = world.here("audit", "demo"), world.here("audit", "demo", "--deep")
    if case.deep:
        assert (shallow.exit_code, shallow.stdout) == (0, "")
    audit = deep if case.deep else shallow
    lines = sorted([line, *case.more])
    assert (audit.exit_code, sorted(audit.stdout.splitlines())) == (1, lines)
    assert (deep.exit_code, line in deep.stdout.splitlines()) == (1, True)
    if case.first:
        change(world, case.first, dsn=dsn)
    for words in case.advised or [
        difference.partition("next: tidemark ")[2] for difference in lines if "next: tidemark " in difference
    ]:
        world.ok(*words.split())
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("tampering", OF_A_LAKE)
def test_tampering_with_a_lake_and_its_database_is_one_line_whose_advice_helps(lake: World, tampering: str) -> None:
    judge(lake, OF_A_LAKE[tampering], lake.dsn)


@pytest.mark.parametrize("tampering", OF_A_TABLE)
def test_tampering_with_a_table_is_one_line_whose_advice_helps(table: TableWorld, tampering: str) -> None:
    judge(table, OF_A_TABLE[tampering], table.targets["warehouse"])


def test_a_sink_that_does_not_answer_is_one_line_and_the_others_are_compared(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(20)
    world.ok("run", "demo")
    [first, *_] = world.data_paths()
    first.unlink()
    world.targets["warehouse"] = "postgresql://nobody:secret@127.0.0.1:1/none"
    audit = world.here("audit", "demo")
    assert audit.exit_code == 1
    [of_lake, of_table] = audit.stdout.splitlines()
    assert re.match(
        rf"manifest 1: a file with \d+ rows? is missing: {re.escape(str(first.relative_to(world.lake)))}; ", of_lake
    )
    assert of_table.startswith("sink postgres cannot be compared: ")
    assert "cannot be reached" in of_table
    assert "; next: " in of_table


def test_staging_that_was_left_is_no_damage_and_status_says_what_it_is(lake: World) -> None:
    words, failpoint = STAGED
    assert lake.tidemark(*words, failpoint=failpoint).returncode < 0
    assert lake.here("audit", "demo").exit_code == 1
    told = lake.here("status", "demo")
    assert (told.exit_code, told.stdout.startswith("demo: ok")) == (0, True), told.stdout
    assert "found something that no reader sees, first manifest 2: staging was left by an attempt" in told.stdout
    assert "next: tidemark retry demo; then: tidemark audit demo" in told.stdout
    assert lake.status("demo")[0]["leftover"]["manifest_id"] == 2
    with ManifestDatabase(lake.dsn, "a test") as database:
        words_of_page = ManifestWords.of_pipeline(database, status(database, "demo", None))
        assert words_of_page.of(database.manifests.get(2)).state is State.OK, "the page has the same word"
    lake.ok("retry", "demo")
    assert lake.ok("audit", "demo") == ""
    assert "no reader sees" not in lake.ok("status", "demo")
