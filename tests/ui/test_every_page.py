"""Every page of ours in Chromium, in a real Airflow."""

import re
from typing import Any

import pytest

from tests.ui.pictures import WIDTHS, Picture, seen
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.world import EPOCH

pytestmark = pytest.mark.timeout(600)
PIPELINE = f"/tidemark/pipelines/{DAG}"


def test_each_page_at_two_widths_light_and_dark_is_readable_by_anybody(
    airflow_world: AirflowWorld, page: Any, picture: Picture
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    demo, world = airflow_world, airflow_world.world
    world.produce(90, bad_every=45)
    demo.deploy()
    world.ok("run", DAG)
    world.settings |= {"on_error": "fail", "retries": 0}
    world.write_pipeline()
    world.produce(30, bad_every=30)
    assert world.here("run", DAG).exit_code == 1
    demo.update()
    world.data_paths()[0].unlink()
    assert world.here("audit", DAG).exit_code == 1
    day = "2026-01-01T00:00"
    places = {
        "pipelines": "/tidemark/",
        "pipeline": PIPELINE,
        "pipeline-by-day": f"{PIPELINE}?by=day",
        "pipeline-by-week-before": f"{PIPELINE}?by=week&to={day}",
        "pipeline-week": f"{PIPELINE}?window=7d",
        "failed-manifests": f"{PIPELINE}?state=failed&since={day}&topic={world.topic}&partition=0",
        "no-manifests": f"{PIPELINE}?until={day}",
        "manifest": f"{PIPELINE}/manifests/1",
        "manifest-beside-its-sinks": f"{PIPELINE}/manifests/1?compare=true",
        "failed-manifest": f"{PIPELINE}/manifests/2",
        "hour": f"{PIPELINE}/hours/{EPOCH:%Y-%m-%dT%H:%MZ}",
        "dead-letters": f"{PIPELINE}/dead-letters",
        "dead-letters-of-a-manifest": f"{PIPELINE}/dead-letters?manifest=1",
        "records": f"{PIPELINE}/peek",
        "look-up-form": "/tidemark/where",
        "look-up": f"/tidemark/where?topic={world.topic}&partition=0&offset=7",
        "look-up-of-nothing": f"/tidemark/where?topic={world.topic}&partition=77&offset=7",
        "look-up-of-no-number": f"/tidemark/where?topic={world.topic}&partition=x&offset=7",
        "retry": f"{PIPELINE}/start/retry",
        "replay": f"{PIPELINE}/start/replay?manifest=1",
        "no-replay": f"{PIPELINE}/start/replay",
        "not-found": "/tidemark/pipelines/none",
        "no-page": "/tidemark/no/where",
        "not-understood": f"{PIPELINE}?by=month",
    }
    page.goto(PIPELINE)
    text = page.get_by_role("main").inner_text()
    assert re.search(r"\b1 dead letter in \[0, \d+\), manifest 1", text)
    line = page.get_by_role("img", name=re.compile(rf"^{world.topic}-\d+: [\d,]+ failed, [\d,]+ damaged"))
    line.first.locator("canvas").wait_for()
    assert re.search(r"What the audit of .* found: \d+", text)
    page.get_by_role("table").filter(has_text="each leads to its manifests").get_by_role("link").first.click()
    page.get_by_role("heading", name=re.compile("^Event hour 2024-03-01 00:00")).wait_for()
    page.get_by_role("link", name="1", exact=True).wait_for()
    page.goto("/tidemark/")
    axe, wrong = Axe(), []
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            with seen(page, width, scheme) as window:
                window.on("console", lambda message: "Content Security" in message.text and wrong.append(message.text))
                window.on("pageerror", lambda error: wrong.append(str(error)))
                for name, address in places.items():
                    window.goto(address)
                    window.get_by_role("main").wait_for()
                    for violation in axe.run(window).response["violations"]:
                        nodes = [node["html"][:150] for node in violation["nodes"]]
                        wrong.append(f"{name} {width} {scheme}: {violation['id']}: {violation['help']} {nodes}")
                    if window.evaluate("document.documentElement.scrollWidth > innerWidth"):
                        wrong.append(f"{name} {width} {scheme}: is wider than the window")
                    picture(window, f"checked-{name}-{width}-{scheme}", full_page=True)
    assert not wrong, "\n".join(wrong)
