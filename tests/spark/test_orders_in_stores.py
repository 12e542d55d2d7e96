"""Drivers that a command of the user starts somewhere: order and receipt go through a store."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sandbox.services.processes import wait_until
from sandbox.services.s3 import Bucket
from tests.faults.s3_proxy import AT_EVERY_TRY, Answer, Rule, S3Proxy
from tests.worlds.on_cluster import assert_nothing_but_staging_differs, local_driver, write_script
from tests.worlds.s3_world import Prefix
from tests.worlds.world import World

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]
START = 300  # seconds for a driver: 10 on two idle cores
# A driver in a session of its own, which stops when it has staged a file.
STOPPED = "TIDEMARK_FAILPOINT=stage.mid:stop setsid {driver} & echo $! > {folder}/first"


class Elsewhere:
    """A pipeline whose drivers a script starts, as that of a user does on a cluster."""

    def __init__(self, world: World, bucket: Bucket, proxy: S3Proxy) -> None:
        self.world, self.proxy = world, proxy
        self.orders = Prefix(bucket)
        self.script = world.folder / "submit.sh"
        self.environment = {"AIRFLOW_CONN_ORDERS": bucket.connection(proxy.endpoint_url)}
        world.settings = {
            **world.settings,
            "spark": {
                "engine": "cluster", "orders": bucket.root, "orders_connection": "orders",
                "submit": [str(self.script)],
            },
        }  # fmt: skip
        world.write_pipeline()
        self.driver = local_driver(world)
        self.starts(f"exec {self.driver}")

    def starts(self, *commands: str) -> None:
        write_script(self.script, *commands)

    def end(self, *words: str) -> tuple[int | None, str]:
        """Run a command; return its exit status, and what it printed."""
        process = self.world.start(*words, spark=True, env=self.environment)
        out, err = process.communicate(timeout=START)
        return process.returncode, out + err

    def run(self, *words: str) -> None:
        status, printed = self.end(*words)
        assert status == 0, printed


@pytest.fixture
def elsewhere(make_world: Callable[..., World], s3: Bucket, tmp_path: Path) -> Iterator[Elsewhere]:
    world = make_world()
    world.produce(20)
    own = s3.below(tmp_path.name)
    with S3Proxy(s3) as proxy:
        yield Elsewhere(world, own, proxy)
    own.empty()


def test_a_receipt_whose_answer_is_lost_is_looked_up(elsewhere: Elsewhere) -> None:
    rule = elsewhere.proxy.arm(Rule(Answer.LOST, "PUT", "/receipt.json"))
    elsewhere.run("run", "demo")
    assert rule.struck == rule.times
    elsewhere.world.assert_complete()
    assert elsewhere.orders.keys() == []


def test_a_receipt_that_never_arrives_ends_the_attempt_with_the_reason_and_a_retry_does_the_rest(
    elsewhere: Elsewhere,
) -> None:
    elsewhere.proxy.arm(Rule(Answer.CUT_BEFORE, "PUT", "/receipt.json", times=-1))
    status, printed = elsewhere.end("run", "demo")
    assert (status, "S3 did not answer the request to write" in printed) == (1, True), printed
    elsewhere.world.assert_whole()
    elsewhere.proxy.disarm()
    elsewhere.run("retry", "demo")
    elsewhere.world.assert_complete()
    assert elsewhere.orders.keys() == []


def test_a_store_that_does_not_answer_when_the_command_has_ended_is_waited_for(elsewhere: Elsewhere) -> None:
    ended, driver = elsewhere.world.folder / "ended", "-m tests.worlds.driver_without_spark /"
    elsewhere.starts(f'{sys.executable} {driver} "$@" && touch {ended}')
    rule = elsewhere.proxy.arm(Rule(Answer.CUT_BEFORE, "GET", "/receipt.json", times=-1))
    process = elsewhere.world.start("run", "demo", spark=True, env=elsewhere.environment)
    wait_until(ended.exists, "the driver to have answered", timeout=START)
    before = rule.struck
    wait_until(lambda: rule.struck > before + AT_EVERY_TRY, "a look for the answer after that", timeout=START)
    elsewhere.proxy.disarm()
    out, err = process.communicate(timeout=START)
    assert process.returncode == 0, out + err
    elsewhere.world.assert_complete()
    assert elsewhere.orders.keys() == []


def test_of_two_drivers_of_one_order_the_slower_one_changes_nothing(elsewhere: Elsewhere) -> None:
    world = elsewhere.world
    elsewhere.starts(STOPPED.format(driver=elsewhere.driver, folder=world.folder), f"exec {elsewhere.driver}")
    elsewhere.run("run", "demo")
    world.assert_complete()
    first = psutil.Process(int((world.folder / "first").read_text()))
    wait_until(lambda: first.status() == psutil.STATUS_STOPPED, "the first driver to stop", timeout=START)
    published = world.json("objects", "demo")
    os.killpg(first.pid, signal.SIGCONT)
    psutil.wait_procs([first], timeout=START)
    assert not first.is_running()
    assert world.json("objects", "demo") == published
    assert_nothing_but_staging_differs(world)
    world.assert_complete()
    assert elsewhere.orders.keys() == []


def test_a_driver_that_leaves_nothing_is_named_by_the_words_of_its_command(elsewhere: Elsewhere) -> None:
    elsewhere.starts("echo 'Exception: no room in the queue' >&2", "exit 3")
    status, printed = elsewhere.end("run", "demo")
    assert status == 1
    assert "the driver on the cluster left no receipt; submit.sh ended with exit status 3" in printed
    assert "no room in the queue" in printed
    assert "a retry starts a new attempt: tidemark retry demo" in printed


def test_the_doctor_tries_the_place_of_orders_and_a_driver(elsewhere: Elsewhere) -> None:
    refusal = Rule(Answer.REFUSED, "PUT", "/_doctor-", times=-1, status=403, code="AccessDenied")
    for rule, severity in ((None, "ok"), (refusal, "failed")):
        elsewhere.proxy.rule = rule
        _, printed = elsewhere.end("doctor", "demo", "--json")
        findings = json.loads(printed[printed.index("[") : printed.rindex("]") + 1])
        [finding] = [finding for finding in findings if finding["check"] == "orders"]
        assert (finding["severity"], bool(finding["next_step"])) == (severity, severity == "failed"), finding
        [of_driver] = [finding for finding in findings if finding["check"] == "driver"]
        assert of_driver["severity"] == severity, of_driver
    assert elsewhere.orders.keys() == []
    elsewhere.proxy.disarm()
    elsewhere.script.unlink()
    status, printed = elsewhere.end("doctor", "demo")
    assert (status, f"{elsewhere.script} cannot be started" in " ".join(printed.split())) == (1, True), printed


def test_a_command_that_does_not_exist_is_named(elsewhere: Elsewhere) -> None:
    elsewhere.script.unlink()
    status, printed = elsewhere.end("run", "demo")
    assert (status, f"{elsewhere.script} cannot be started: No such file" in printed) == (2, True), printed


def test_interrupted_the_order_is_taken_back_and_its_driver_ends_by_itself(elsewhere: Elsewhere) -> None:
    world = elsewhere.world
    elsewhere.starts(STOPPED.format(driver=elsewhere.driver, folder=world.folder), "exec sleep 600")
    process = world.start("run", "demo", spark=True, env=elsewhere.environment)
    wait_until((world.folder / "first").exists, "the driver to be started", timeout=START)
    driver = psutil.Process(int((world.folder / "first").read_text()))
    wait_until(lambda: driver.status() == psutil.STATUS_STOPPED, "the driver to stop", timeout=START)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=START)
    assert "interrupted; nothing is published half" in printed
    assert elsewhere.orders.keys() == []
    os.killpg(driver.pid, signal.SIGCONT)
    psutil.wait_procs([driver], timeout=START)
    assert not driver.is_running()
    elsewhere.starts(f"exec {elsewhere.driver}")
    elsewhere.run("retry", "demo")
    world.assert_complete()
    assert elsewhere.orders.keys() == []
