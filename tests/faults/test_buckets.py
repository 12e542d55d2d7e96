"""Faults between Tidemark and a bucket. Each test begins with the name of its row of the failure matrix."""

import signal
import time
from collections.abc import Callable

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.worlds.s3_world import S3World
from tests.worlds.world import wait_stopped, wake

Make = Callable[..., S3World]
KEY = ("--run-key", "one")
SOME = 2720  # bytes: of files of that size and more, half of those here, each is an upload
STAGED, COPIED, RECORDED = ("_staging/", False), ("/raw/", True), ("_manifests/demo/", False)
REQUESTS = pytest.mark.parametrize(("having", "copy"), [STAGED, COPIED, RECORDED], ids=["staged", "copied", "recorded"])


@pytest.fixture
def world(make_s3_world: Make, s3_proxy: S3Proxy) -> S3World:
    """One manifest, two event hours on two partitions, through the proxy."""
    return make_s3_world(endpoint_url=s3_proxy.endpoint_url, settings={"kafka": {"slice": {"max_records": 1000}}})


@pytest.mark.parametrize("uploads_from", [None, SOME], ids=["objects", "uploads"])
@pytest.mark.parametrize("point", ["publish.mid", "publish.marked"])
def test_killed_over_a_bucket_nothing_is_missing_and_nothing_twice(
    make_s3_world: Make, point: str, uploads_from: int | None
) -> None:
    world = make_s3_world(uploads_from=uploads_from)
    world.produce(60, bad_every=9)
    killed = world.tidemark("run", "demo", *KEY, failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.finish()
    assert world.uploads() == []


@pytest.mark.parametrize("uploads_from", [None, 1], ids=["objects", "uploads"])
def test_woken_late_over_a_bucket_an_attempt_changes_nothing(make_s3_world: Make, uploads_from: int | None) -> None:
    world = make_s3_world(uploads_from=uploads_from)
    world.produce(60)
    paused = world.start("run", "demo", *KEY, failpoint="publish.mid:stop")
    wait_stopped(paused)
    world.ok("replay", "demo", *KEY, "--take-over")
    before = world.exact()
    assert before == world.everything()
    wake(paused)
    assert world.exact() == before
    assert world.listing() == before, "it takes back what it had put"
    world.finish()
    assert world.uploads() == []


@pytest.mark.exhaustive
@REQUESTS
def test_F4_a_request_whose_answer_is_lost_is_looked_up(
    world: S3World, s3_proxy: S3Proxy, having: str, copy: bool
) -> None:
    world.produce(40)
    rule = s3_proxy.arm(Rule(Answer.LOST, "PUT", having, copy))
    world.ok("run", "demo", *KEY)
    assert rule.struck == rule.times
    s3_proxy.disarm()
    assert {manifest["published_attempt"] for manifest in world.json("manifests", "demo")} == {1}
    world.assert_complete()


@pytest.mark.exhaustive
@REQUESTS
def test_F4_a_request_that_never_arrives_fails_the_attempt_and_takes_back_what_was_put(
    world: S3World, s3_proxy: S3Proxy, having: str, copy: bool
) -> None:
    world.produce(40)
    rule = s3_proxy.arm(Rule(Answer.CUT_BEFORE, "PUT", having, copy, times=-1, skip=1 if copy else 0))
    done = world.here("run", "demo", *KEY)
    assert done.exit_code == 1
    assert "S3 did not answer the request to" in done.stderr
    assert rule.struck >= 3
    s3_proxy.disarm()
    assert world.listing() == world.exact() == {}
    world.finish()


@pytest.mark.exhaustive
@pytest.mark.parametrize("answer", [Answer.LOST, Answer.CUT_BEFORE])
def test_F4_any_request_of_a_run_may_be_lost(
    make_s3_world: Make, s3_proxy: S3Proxy, postgres: Postgres, template: str, answer: Answer
) -> None:
    """At every seventh request of a run, three in a row, so that no try of it comes through. Half of the files are
    uploads."""
    for at in range(1, 400, 7):
        world = make_s3_world(endpoint_url=s3_proxy.endpoint_url, uploads_from=SOME)
        with postgres.temporary_database("requests", template) as world.dsn:
            world.produce(20)
            rule = s3_proxy.arm(Rule(answer, skip=at))
            done = world.here("run", "demo", *KEY)
            s3_proxy.disarm()
            assert done.exit_code in ((0, 1) if rule.struck else (0,)), done.stderr
            world.finish()
        if not rule.struck:
            assert at > 20
            return
    pytest.fail("a run has more than 400 requests")


@pytest.mark.exhaustive
def test_F12_a_copy_that_fails_half_way_leaves_nothing_half(world: S3World, s3_proxy: S3Proxy) -> None:
    world.produce(60)
    rule = s3_proxy.arm(Rule(Answer.REFUSED, "PUT", "/raw/", copy=True, times=-1, skip=1))
    done = world.here("run", "demo", *KEY)
    assert done.exit_code == 1
    assert f"S3 refused to copy {world.root}/" in done.stderr
    assert "InternalError" in done.stderr
    assert rule.struck >= 3
    s3_proxy.disarm()
    assert world.listing() == world.exact() == world.recorded() == {}
    world.finish()


def test_F13_uploads_of_dead_attempts_are_aborted_and_of_nobody_else(make_s3_world: Make) -> None:
    world = make_s3_world()
    world.produce(60)
    killed = world.tidemark("run", "demo", *KEY, failpoint="publish.mid:kill9")
    assert killed.returncode == -signal.SIGKILL
    put = next(key.rpartition("/")[0] for key in world.object_keys() if key.startswith("raw/"))
    half = f"{put}/0000000001-a0001-p00000-{0:019d}-{20:019d}-00099.parquet"
    world.begin_upload("_staging/0000000001/0001/files/00000-9-00007.parquet")
    world.begin_upload(world.keys_of_receipt(1)[-1])
    world.begin_upload(half)  # of no receipt: it might be anybody's
    world.ok("retry", "demo")
    assert world.uploads() == [half]
    world.ok("run", "demo", *KEY)
    world.begin_upload("_staging/0000000001/0001/files/00000-9-00008.parquet")
    world.ok("retry", "demo")
    assert world.uploads() == [half], "also when its folder holds nothing else"


@pytest.mark.parametrize("point", ["stage.mid", "stage.done", "publish.receipt"])
def test_F13_what_a_dead_attempt_has_uploaded_is_aborted(make_s3_world: Make, point: str) -> None:
    world = make_s3_world(uploads_from=1)
    world.produce(60)
    killed = world.tidemark("run", "demo", *KEY, failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    time.sleep(1)  # for what the dead process had asked for, and a store may do a moment later
    begun = [key for key in world.uploads() if key.startswith("raw/")]
    # In the middle of staging there is a note of an upload, which comes first; the upload may not have begun.
    assert begun or (point == "stage.mid" and any(key.endswith(".upload") for key in world.staging()))
    assert world.listing() == {}
    world.finish()
    assert world.uploads() == world.staging() == []


def test_F13_an_upload_of_an_attempt_that_is_alive_stays(make_s3_world: Make) -> None:
    world = make_s3_world()
    world.produce(60)
    process = world.start("run", "demo", *KEY, failpoint="stage.done:stop")
    wait_stopped(process)
    world.begin_upload("_staging/0000000001/0001/files/00000-9-00007.parquet")
    world.ok("retry", "demo")
    world.ok("repair", "demo", "--why", "somebody tidies up")
    assert world.uploads() == ["_staging/0000000001/0001/files/00000-9-00007.parquet"]
    assert wake(process).returncode == 0
    assert world.uploads() == []
    world.finish()


@pytest.mark.exhaustive
def test_a_bucket_whose_keys_may_not_write_publishes_nothing_and_goes_on_when_they_may(
    world: S3World, s3_proxy: S3Proxy
) -> None:
    world.produce(40)
    world.ok("plan", "demo", *KEY)
    s3_proxy.arm(Rule(Answer.REFUSED, "PUT", times=-1, status=403, code="AccessDenied"))
    done = world.here("run", "demo", *KEY)
    assert done.exit_code == 1
    assert "give these keys s3:ListBucket" in done.stderr
    s3_proxy.disarm()
    assert world.listing() == world.exact() == {}
    world.finish()


def test_no_key_of_a_bucket_is_ever_written_or_said(make_s3_world: Make) -> None:
    world = make_s3_world()
    world.produce(40, bad_every=9)
    failed = world.tidemark("run", "demo", *KEY, failpoint="publish.before_record:raise")
    assert failed.returncode == 1
    retried = world.tidemark("retry", "demo")
    assert retried.returncode == 0, retried.stderr
    assert not [text for text in world.texts(failed, retried) if world.s3.key_id in text or world.s3.secret in text]
