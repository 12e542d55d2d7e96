"""The page as a person on call meets it: Chromium, a real Airflow, a manifest that has failed."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from tests.ui.pictures import WIDTHS, Picture, seen, viewport
from tests.worlds.airflow_world import DAG, AirflowWorld

pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine
UPPER_PART = {"x": 0, "y": 0, "width": WIDTHS["wide"][0], "height": 600}  # of a page that is empty below it
PIPELINE = f"/tidemark/pipelines/{DAG}"


@pytest.fixture
def topic_name(broker: Broker) -> str:
    """A topic with a name for the pictures; the test before has left one."""
    broker.delete_topic("orders")
    return "orders"


def fail_on_bad_records(demo: AirflowWorld) -> None:
    demo.world.settings |= {"on_error": "fail", "retries": 0}
    demo.world.write_pipeline()


def mend(demo: AirflowWorld) -> None:
    """Let records that cannot be decoded become dead letters."""
    demo.world.settings["on_error"] = "dead_letter"
    demo.world.write_pipeline()
    demo.update()


def follow(page: Any, link: Any) -> None:
    """Click what leads to another page of ours, and wait until Airflow's own address names that page.

    Airflow writes the address of our frame into its own after the frame has loaded, and when it draws the page again it
    opens that address in the frame. Who has clicked once more in between is taken back: a person is too slow for that,
    and a test is not.
    """
    before = page.url
    link.click()
    ours = "frames[0]?.location.href.slice(location.origin.length)"
    page.wait_for_function(f"before => location.href !== before && location.href.endsWith({ours})", arg=before)
    page.evaluate("new Promise(done => requestIdleCallback(done))")


def test_a_failed_manifest_is_seen_opened_retried_and_becomes_done(
    airflow_world: AirflowWorld, page: Any, picture: Picture, terminal: Callable[..., None]
) -> None:
    """The steps of docs/tutorial.md, and its pictures."""
    demo, world = airflow_world, airflow_world.world
    world.produce(90)
    world.ok("run", DAG)
    fail_on_bad_records(demo)
    world.produce(60, bad_every=90)
    demo.deploy()
    demo.fail(demo.trigger())
    mend(demo)

    follow(page, page.get_by_role("link", name="Tidemark", exact=True))
    ours = page.frame_locator("iframe")
    rows = ours.get_by_role("row").filter(has_text=DAG)
    row, reason = rows.first, rows.last
    assert "failed" in row.inner_text()
    assert reason.locator("strong").inner_text() == "a record cannot be used"
    assert f"{world.topic}-0 offset 45 · manifest 2" in reason.inner_text()
    command = reason.locator(".command", has_text="tidemark retry").first
    command.get_by_role("button", name="copy").click()
    command.get_by_role("button", name=re.compile("^(copied|selected) tidemark retry")).wait_for()
    picture(page, "tutorial-pipelines-wide-light", clip=UPPER_PART)
    for width, scheme in (("phone", "light"), ("phone", "dark"), ("wide", "light")):
        with seen(page, width, scheme) as window:
            for name, address in (("pipelines", "/tidemark/"), ("pipeline", PIPELINE)):
                window.goto(address)
                window.get_by_role("main").wait_for()
                picture(window, f"{name}-{width}-{scheme}", full_page=True)
    follow(page, row.get_by_role("link", name=DAG))
    follow(page, ours.get_by_role("link", name="1 failed", exact=True))
    follow(page, ours.get_by_role("link", name="2", exact=True))
    ours.get_by_role("heading", name=re.compile(r"^Manifest 2 .*failed$")).wait_for()
    assert f"{world.topic}-0 offset 45" in ours.get_by_role("main").inner_text()
    picture(page, "tutorial-failed-wide-light")
    follow(page, ours.get_by_role("link", name="look at the record"))
    ours.get_by_text("0 rows, 1 dead letter.").wait_for()
    ours.get_by_role("rowheader", name=f"{world.topic}-0 offset 45").wait_for()
    follow(page, ours.get_by_role("link", name=DAG, exact=True))
    terminal("status", "status")
    terminal("show", "show", "2")
    follow(page, ours.get_by_role("link", name="Retry what is not done"))
    ours.get_by_text("1 manifest, 60 offsets.").wait_for()
    ours.get_by_role("button", name="Retry 1 manifest").click()
    assert page.frames[-1].url.endswith("/start/retry"), "without a reason nothing is sent"
    ours.get_by_label("Your reason, for the history").fill("the record is a dead letter now")
    picture(page, "tutorial-retry-wide-light", clip=UPPER_PART)
    ours.get_by_role("button", name="Retry 1 manifest").click()
    ours.get_by_text("Started: DAG run").wait_for()
    ours.get_by_text("It has ended: success").wait_for(timeout=240_000)  # nobody reloads the page
    assert "1 failed" not in ours.get_by_role("main").inner_text()

    page.goto(f"{PIPELINE}/manifests/2")

    def done() -> bool:
        page.reload()
        return "Manifest 2 ok" in page.get_by_role("heading", level=1).inner_text()

    wait_until(done, "the manifest to be ok on the page", timeout=240, interval=2)
    assert "60 read = 59 written + 1 dead-lettered" in page.get_by_role("main").inner_text()
    picture(page, "tutorial-done-wide-light")
    with seen(page, "phone", "light") as window:
        window.goto(f"{PIPELINE}/manifests/2")
        window.get_by_role("main").wait_for()
        picture(window, "manifest-phone-light", full_page=True)
    assert "the record is a dead letter now" in world.ok("history", DAG)
    world.assert_complete()


def test_pictures_say_their_numbers_follow_the_colours_of_the_browser_and_are_tables_without_a_script(
    airflow_world: AirflowWorld, page: Any
) -> None:
    demo, world = airflow_world, airflow_world.world
    demo.deploy()
    for records in (90, 30):
        world.produce(records)
        world.ok("run", DAG)
    captions = re.compile("^(records|duration|files|mean file size|lag|age): at most .+, last .+")
    with seen(page, "phone", "light") as window:
        window.goto("/tidemark/")
        strip = window.get_by_role("link", name="the last 2 runs: 2 ok")
        window.get_by_role("img", name=re.compile("^lag when the last 2 runs were planned.* 90 first")).wait_for()
        strip.focus()
        window.keyboard.press("Enter")
        window.get_by_role("heading", name="The last runs").wait_for()
        pictures = window.get_by_role("img", name=captions)
        pictures.nth(5).wait_for()
        names = [picture.get_attribute("aria-label") for picture in pictures.all()]
        assert [name.partition(":")[0] for name in names] == [
            "records", "duration", "files", "mean file size", "lag", "age",
        ]  # fmt: skip
        assert names[0] == "records: at most 90, last 30"
        assert pictures.locator("canvas").count() == len(names)

        def is_drawn_in(*colour: int) -> bool:
            """Return whether bars of the first picture have this red, green and blue."""
            points = pictures.first.locator("canvas").evaluate(
                "it => it.width ? Array.from(new Set(new Uint32Array("
                "it.getContext('2d').getImageData(0, 0, it.width, it.height).data.buffer))) : []"  # not sized yet
            )
            return int.from_bytes([*colour, 255], "little") in points

        wait_until(lambda: is_drawn_in(0x4A, 0x7F, 0xC9), "the picture in light colours", timeout=30)
        window.emulate_media(color_scheme="dark")
        wait_until(lambda: is_drawn_in(0x6B, 0x9F, 0xE8), "the picture in dark colours", timeout=30)
    context = page.context.browser.new_context(
        base_url=page.url.partition("/tidemark")[0],
        java_script_enabled=False,
        storage_state=page.context.storage_state(),
    )
    try:
        window = context.new_page()
        window.goto(PIPELINE)
        for name, numbers in (("The runs in numbers", "90"), ("Lag and age in numbers", "90")):
            window.get_by_text(name).click()
            window.locator("details", has_text=name).get_by_role("cell", name=numbers, exact=True).wait_for()
        assert window.locator("canvas").count() == 0
    finally:
        context.close()


def test_the_keyboard_is_enough_to_replay_a_manifest(airflow_world: AirflowWorld, page: Any) -> None:
    demo, world = airflow_world, airflow_world.world
    world.produce(20)
    demo.deploy()
    world.ok("run", DAG)
    page.goto(PIPELINE)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the content"

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = "document.activeElement"
            if name in page.evaluate(f"{focused}.innerText || {focused}.ariaLabel || {focused}.id"):
                assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") != "none", "the focus is seen"
                return
        raise AssertionError(f"no way to {name}")

    tab_to("select manifest 1")
    page.keyboard.press("Space")
    tab_to("Replay the selected")
    page.keyboard.press("Enter")
    page.wait_for_url("**/start/replay?manifest=1")
    tab_to("why")
    page.keyboard.type("by keyboard")
    tab_to("Replay 1 manifest")
    page.keyboard.press("Enter")
    page.get_by_text("Started: DAG run").wait_for()
    [run] = demo.airflow.runs(DAG)
    assert run["conf"] == {"replay": [1]}
    assert run["note"].startswith("by keyboard\n")
    demo.succeed(run["dag_run_id"])
    world.assert_complete()


def test_the_trigger_form_of_airflow_retries_what_is_unfinished(
    airflow_world: AirflowWorld, page: Any, picture: Picture
) -> None:
    demo, world = airflow_world, airflow_world.world
    world.produce(20)
    world.ok("plan", DAG)
    world.produce(20)
    demo.deploy()
    page.goto(f"/dags/{DAG}")
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    for title in ("Plan until", "Replay these manifests", "Retry manifests that are not done"):
        form.get_by_text(title).wait_for()
    form.locator("label", has=page.locator("[name=element_retry_unfinished]")).click()
    for width in WIDTHS:
        page.set_viewport_size(viewport(width))
        form.get_by_text("Plan until").scroll_into_view_if_needed()
        picture(page, f"trigger-form-{width}-light")
    page.set_viewport_size(viewport("wide"))
    form.get_by_role("button", name="Trigger").click()
    wait_until(lambda: bool(demo.airflow.runs(DAG)), "the run", timeout=30)
    [run] = demo.airflow.runs(DAG)
    assert {name: asked for name, asked in run["conf"].items() if asked} == {"retry_unfinished": True}
    demo.succeed(run["dag_run_id"])
    assert [manifest["state"] for manifest in world.manifests()] == ["done"], "nothing new was planned"


def test_the_note_of_a_run_and_the_log_of_a_task_lead_to_the_page_and_it_leads_back(
    airflow_world: AirflowWorld, page: Any
) -> None:
    demo, world = airflow_world, airflow_world.world
    world.produce(20)
    demo.deploy()
    run_id = demo.trigger()
    demo.succeed(run_id)
    run = f"/dags/{DAG}/runs/{quote(run_id, safe='')}"
    page.goto(run)
    assert page.locator(f"a[href$='{PIPELINE}']").first.get_attribute("href") == f"{demo.airflow.url}{PIPELINE}"
    page.goto(f"{run}/tasks/process/mapped/0")
    in_log = page.get_by_role("link", name=f"{PIPELINE}/manifests/1")
    in_log.nth(1).wait_for()
    assert in_log.count() == 2, "the log begins and ends with it"
    page.goto(in_log.first.get_attribute("href"))
    page.get_by_role("heading", name=re.compile(r"^Manifest 1 .*ok$")).wait_for()
    page.get_by_role("link", name=run_id, exact=True).click()
    page.wait_for_url(f"**{run}**")
