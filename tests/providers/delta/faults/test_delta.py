"""What a reader of a Delta table sees: after kills, lost answers, and when others commit at the same time."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from sandbox.services.postgres import Postgres
from sandbox.services.s3 import Bucket
from tests.faults.documented_kills import killed_and_done_again, table
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.worlds.delta_world import DeltaWorld, append_strangers, optimize, remove_what_no_version_names
from tests.worlds.world import wait_stopped, wake
from tidemark.failpoints import FAILPOINTS

SEEN = table("### A table")
Make = Callable[..., DeltaWorld]
FEWER_COLUMNS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point.startswith("publish.before") else pytest.mark.exhaustive)
        for point in FAILPOINTS
    ],
)
def test_killed_for_the_first_time_a_reader_of_the_table_sees_what_the_document_says(
    make_delta_world: Make, point: str
) -> None:
    world = make_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    seen, published = killed_and_done_again(world, point, world.exact, world.everything)
    assert seen == SEEN[point][0]
    assert published == (2 if SEEN[point][2].startswith("attempt 2 does") else 1)


def test_F8_an_attempt_paused_right_before_its_commit_is_refused_by_the_log(make_delta_world: Make) -> None:
    """Its fence has agreed already, so only the state of the table can tell it."""
    world = make_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    [manifest] = world.json("manifests", "demo")
    world.ok("replay", "demo", "--manifest", str(manifest["id"]), "--take-over")
    world.assert_readers_complete()
    before = world.shown()
    assert wake(paused).returncode == 0
    assert world.shown() == before == {manifest["id"]: 2}
    world.ok("retry", "demo")
    world.assert_complete()


def test_F8_an_older_life_of_the_database_that_commits_with_the_same_number_is_noticed_and_adopted(
    make_delta_world: Make, postgres: Postgres
) -> None:
    """Both lives give out attempt 1 of manifest 1; the rows of the older one are in the table when the other puts."""
    world = make_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30)
    world.ok("plan", "demo")
    with postgres.temporary_database("restored", world.dsn.rpartition("/")[2]) as restored:
        older = world.start("retry", "demo", failpoint="attempt.started:stop")
        wait_stopped(older)
        world.dsn = restored
        world.settings["decode"] = FEWER_COLUMNS
        world.write_pipeline()
        newer = world.start("retry", "demo", failpoint="publish.receipt:stop")
        wait_stopped(newer)
        assert wake(older).returncode == 0
        woken = wake(newer)
        assert woken.returncode == 1
        assert "another attempt of this number has put other rows" in woken.stderr
        assert world.shown() == {1: 1}
        assert "Read the records back with: tidemark db adopt demo --why TEXT" in world.here("retry", "demo").stderr
        world.ok("db", "adopt", "demo", "--why", "restored")
        world.assert_readers_complete()
        world.ok("replay", "demo", "--manifest", "1")
        world.produce(20)
        world.ok("run", "demo")
        world.assert_complete()


@pytest.mark.parametrize("other", [optimize, append_strangers], ids=["OPTIMIZE", "another program appends"])
def test_a_commit_of_others_between_load_and_commit_is_refused_and_begun_again(
    make_delta_world: Make, other: Callable[[DeltaWorld], None]
) -> None:
    """With a retry of deltalake's own, files that OPTIMIZE has made of the old rows would stay."""
    a_file_for_each_partition = {"records_per_task": 1}  # else OPTIMIZE has nothing to do
    world = make_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}, "spark": a_file_for_each_partition})
    world.produce(60)
    world.ok("run", "demo")
    strangers = world.rows() if other is append_strangers else None
    world.settings["decode"] = FEWER_COLUMNS
    world.write_pipeline()
    paused = world.start("replay", "demo", "--manifest", "1", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    version = world.loaded().version()
    other(world)
    assert world.loaded().version() == version + 1
    assert wake(paused).returncode == 0
    assert world.shown() == {1: 2}
    rows = [row for row in world.all_rows() if row["_manifest_id"] == 1]
    assert {row["name"] for row in rows} == {None}
    assert len(rows) == 60
    if strangers is None:
        world.assert_complete()


@pytest.mark.parametrize("make", ["make_delta_world", "make_keyed_delta_world"])
def test_files_removed_right_before_the_commit_are_missed_and_no_version_names_them(
    request: pytest.FixtureRequest, make: str
) -> None:
    world: DeltaWorld = request.getfixturevalue(make)(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(30)
    before = world.all_rows()
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    remove_what_no_version_names(world)
    woken = wake(paused)
    assert woken.returncode == 1
    assert "right when the table was to name it, a file of the table is gone" in woken.stderr
    assert world.all_rows() == before
    world.ok("retry", "demo")
    world.assert_complete()


@pytest.fixture
def proxy(s3: Bucket) -> Iterator[S3Proxy]:
    with S3Proxy(s3) as opened:
        yield opened


@pytest.fixture
def in_bucket(make_delta_world: Make, s3: Bucket, proxy: S3Proxy) -> DeltaWorld:
    """All requests of the sink go through the proxy."""
    world = make_delta_world(bucket=s3.below(uuid4().hex), endpoint_url=proxy.endpoint_url)
    world.produce(60, bad_every=13)
    return world


def test_in_a_bucket_every_record_is_there_once(in_bucket: DeltaWorld) -> None:
    in_bucket.ok("run", "demo")
    in_bucket.assert_complete()
    in_bucket.settings["decode"] = FEWER_COLUMNS
    in_bucket.write_pipeline()
    in_bucket.ok("replay", "demo", "--manifest", "1")
    in_bucket.assert_complete()


def test_in_a_bucket_a_table_with_a_key_has_its_newest_rows(make_keyed_delta_world: Make, s3: Bucket) -> None:
    world = make_keyed_delta_world(bucket=s3.below(uuid4().hex))
    for number in range(2):
        world.produce(60, bad_every=13 if number else 0)
        world.ok("run", "demo", "--run-key", str(number))
    world.assert_complete()


@pytest.mark.parametrize("answer", [Answer.LOST, Answer.REFUSED])
def test_F4_a_commit_to_a_bucket_without_an_answer_is_looked_for_in_the_table(
    in_bucket: DeltaWorld, proxy: S3Proxy, answer: Answer
) -> None:
    in_bucket.ok("run", "demo", "--run-key", "nought")
    in_bucket.produce(20)
    status = {"status": 503, "code": "SlowDown"} if answer is Answer.REFUSED else {}
    rule = proxy.arm(Rule(answer, "PUT", "/_delta_log/", times=2, **status))
    done = in_bucket.here("run", "demo", "--run-key", "one")
    assert rule.struck
    assert done.exit_code in (0, 1)
    proxy.disarm()
    in_bucket.finish()


@pytest.mark.parametrize("answer", [Answer.LOST, Answer.REFUSED])
def test_F4_a_merge_into_a_bucket_without_an_answer_is_looked_for_in_the_table(
    make_keyed_delta_world: Make, s3: Bucket, proxy: S3Proxy, answer: Answer
) -> None:
    world = make_keyed_delta_world(bucket=s3.below(uuid4().hex), endpoint_url=proxy.endpoint_url)
    world.produce(60)
    world.ok("run", "demo", "--run-key", "nought")
    world.produce(20)
    status = {"status": 503, "code": "SlowDown"} if answer is Answer.REFUSED else {}
    rule = proxy.arm(Rule(answer, "PUT", "/_delta_log/", times=2, **status))
    done = world.here("run", "demo", "--run-key", "one")
    assert rule.struck
    assert done.exit_code in (0, 1)
    proxy.disarm()
    world.finish()


@pytest.mark.parametrize("there", [False, True], ids=["no table", "a table"])
def test_what_the_store_refuses_has_its_words_and_doctor_finds_it_first(
    in_bucket: DeltaWorld, proxy: S3Proxy, there: bool
) -> None:
    if there:
        in_bucket.ok("run", "demo", "--run-key", "one")
        in_bucket.produce(10)
    assert "(tried)" in in_bucket.ok("doctor", "demo")
    proxy.arm(Rule(Answer.REFUSED, times=-1, status=403, code="AccessDenied"))
    for words in (("doctor", "demo"), ("run", "demo", "--run-key", "two")):
        done = in_bucket.here(*words)
        assert done.exit_code == 1
        assert "AccessDenied" in done.stdout + done.stderr
        assert "give these keys s3:ListBucket" in done.stdout + done.stderr
    proxy.disarm()
    in_bucket.ok("run", "demo", "--run-key", "two")
    in_bucket.assert_complete()
