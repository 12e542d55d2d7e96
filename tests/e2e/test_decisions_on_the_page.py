"""What a person decides on the page, to its end: preview, reason, DAG run, database, history. On a real Airflow, and on
a broker of this module alone, whose log loses its tail."""

import re
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import TopicPartition

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.cut_log import cut, segment

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]  # Spark takes 20 s a manifest, more on a busy machine
PIPELINE = f"/tidemark/pipelines/{DAG}"


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Beside the session's broker: this one may die."""
    with Broker(tmp_path_factory.mktemp("mortal"), STATE / "jars" / "kafka") as server:
        yield server


def refused(demo: AirflowWorld, error: str) -> None:
    done = demo.world.here("plan", DAG)
    assert done.exit_code == 1
    assert f"error={error}" in done.stderr


def succeed(demo: AirflowWorld, run_id: str) -> None:
    """Without the check of ``AirflowWorld.succeed``: in the next log generation the same offsets come again."""
    assert demo.airflow.wait_run(DAG, run_id, lambda _: None, timeout=240) == "success", demo.logs(run_id)


def decided(demo: AirflowWorld, browser: httpx.Client, action: str, why: str, told: str) -> str:
    """Follow the button of the pipeline's page, read the preview, send the reason, and wait for the run."""
    links: list[str] = []

    def shown() -> bool:
        links[:] = re.findall(rf'href="({PIPELINE}/start/{action}[^"]*)"', browser.get(PIPELINE).text)
        return bool(links)

    wait_until(shown, f"the button of {action}: the page does not wait for Kafka", timeout=60, interval=1)
    preview = browser.get(links[0].replace("&amp;", "&"))
    assert told in preview.text
    before = demo.world.json("history", DAG)
    assert why not in str(before), "a preview decides nothing"
    form = {"token": re.findall(r'name="token" value="([^"]+)"', preview.text)[0], "why": why}
    for _ in "ab":
        assert browser.post(f"{PIPELINE}/start/{action}", data=form).status_code == 303
    [run] = [run for run in demo.airflow.runs(DAG) if run["conf"].get("accept", {}).get("decision") == action]
    assert run["triggering_user_name"] == demo.airflow.user
    run_id = str(run["dag_run_id"])
    succeed(demo, run_id)
    asked, made = demo.world.json("history", DAG)[len(before) :]
    assert (asked["decision"], asked["why"]) == (action, why)
    assert asked["lines"] == [f"DAG run {run_id}, asked for on the page by {demo.airflow.user}"]
    assert asked["actor"] == f"airflow page {demo.airflow.user}"
    assert (made["decision"], made["why"]) == (action, f"{why} (DAG run {run_id})")
    assert f"airflow {DAG} {run_id} plan" in made["actor"]
    assert told in "\n".join(made["lines"])
    return run_id


def test_a_cut_a_recreated_topic_and_a_loss_are_accepted_on_the_page_and_the_run_reads_on(
    served_world: AirflowWorld, browser: httpx.Client, mortal: Broker
) -> None:
    demo, world = served_world, served_world.world
    world.broker = mortal
    world.create_topic()
    world.write_pipeline()
    world.produce(20)
    size = segment(world).stat().st_size
    world.produce(20)
    world.ok("run", DAG)
    demo.deploy()

    mortal.kill()
    cut(segment(world), size)
    mortal.start()
    refused(demo, "topic-changed")
    run_id = decided(demo, browser, "accept-truncation", "a disk was restored", "the next starts at 10")
    assert demo.states(run_id)["process", -1] == "skipped", "nothing has arrived since"
    assert world.ok("audit", DAG, "--deep") == ""

    world.produce(20)
    world.administer("delete_records", [TopicPartition(world.topic, 1, 25)])
    refused(demo, "data-lost")
    decided(demo, browser, "accept-loss", "the disk was too small", f"{world.topic}-1")
    [manifest] = [each for each in world.manifests() if each["id"] == 2]
    spans = {part["partition"]: (part["start"], part["end"]) for part in manifest["ranges"]}
    assert spans == {0: (10, 20), 1: (25, 30)}
    assert manifest["state"] == "done"
    assert world.ok("audit", DAG, "--deep") == ""

    mortal.delete_topic(world.topic)
    mortal.create_topic(world.topic, 2)
    refused(demo, "topic-changed")
    decided(demo, browser, "accept-topic", "it was made again", "reading begins at offset 0 of the new topic")
    world.produce(20)
    succeed(demo, demo.trigger())
    assert {(part["start"], part["end"]) for part in world.manifests()[-1]["ranges"]} == {(0, 10)}
    assert world.ok("audit", DAG, "--deep") == ""
    lost = [loss for loss in world.json("history", DAG) if loss["decision"] == "accept-loss"]
    assert len(lost) == 2, "who asked for it, and what the run did"
