"""The page's list with pipelines in each state, in a browser, without Airflow."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench import browser as bench
from sandbox.services.postgres import Postgres
from tests.ui.pictures import Picture
from tests.worlds.listed_pipelines import every_state, list_page
from tidemark.airflow.page import pages
from tidemark.airflow.page.app import HEADERS

ADDRESS = "http://example.com/tidemark/"


@pytest.fixture(params=[(width, scheme) for width in bench.WINDOWS for scheme in ("light", "dark")], ids="-".join)
def window(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    width, scheme = request.param
    size = dict(zip(("width", "height"), bench.WINDOWS[width], strict=True))
    context = browser.new_context(viewport=size, color_scheme=scheme)
    window = context.new_page()
    window.name = f"{width}-{scheme}"
    yield window
    context.close()


@pytest.fixture
def plain(browser: Any) -> Iterator[Any]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def show(window: Any, html: str) -> list[str]:
    """Open a page with its files and headers; what the browser refuses is listed."""
    refused: list[str] = []
    window.on("console", lambda message: "Content Security" in message.text and refused.append(message.text))
    window.on("pageerror", lambda error: refused.append(str(error)))

    def answer(route: Any) -> None:
        _, file, name = route.request.url.partition("/static/")
        body, kind = (pages.static(name).body, pages.ASSETS[name]) if file else (html, "text/html")
        route.fulfill(body=body, headers={**HEADERS, "Content-Type": kind})

    window.route("**/*", answer)
    window.goto(ADDRESS)
    window.get_by_role("main").wait_for()
    return refused


@pytest.mark.parametrize("count", [3, 28, 200])
def test_the_first_screen_names_what_needs_you_and_why(window: Any, picture: Picture, count: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    wrong = show(window, list_page(every_state(count)))
    picture(window, f"list-{count}-{window.name}", full_page=True)
    for violation in Axe().run(window).response["violations"]:
        wrong.append(f"{violation['id']}: {violation['help']} {[node['html'][:150] for node in violation['nodes']]}")
    assert not wrong, "\n".join(wrong)
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")
    causes = window.locator(".reason strong")
    assert causes.count() == (2 if count == 3 else 9)
    bottom = causes.first.bounding_box()
    assert bottom["y"] + bottom["height"] < window.viewport_size["height"]


def test_a_command_is_copied_when_what_it_leaves_to_you_is_filled_in(plain: Any) -> None:
    show(plain, list_page(every_state(28)))
    command = plain.locator(".command").filter(has_text="tidemark accept topic").first
    button, reason = command.get_by_role("button"), command.get_by_role("textbox")
    button.click()
    assert button.inner_text() == "fill in first"
    assert reason.evaluate("field => field === document.activeElement")
    reason.fill("it's ours; $(ls)")
    button.click()
    command.get_by_role("button", name="selected").wait_for()
    selected = plain.evaluate("getSelection().toString()").split()
    assert " ".join(selected).endswith("""--topic payments --why 'it'\\''s ours; $(ls)'""")


@pytest.mark.parametrize(
    ("state", "records", "words"),
    [
        ("ok", 'data-value="30">30', "records: at most 90, last 30"),
        ("failed", ">", "records: at most 90, last 90, then failed"),
    ],
)
def test_the_caption_of_a_picture_names_the_last_number_and_what_came_after_it(
    plain: Any, state: str, records: str, words: str
) -> None:
    head = "".join(f'<script src="/static/{name}" defer></script>' for name in ("uPlot.iife.min.js", "pictures.js"))
    rows = "".join(
        f'<tr data-at="{at}"><th>then</th><td data-name="state">{word}</td><td {cell}</td></tr>'
        for at, word, cell in ((2, state, records), (1, "ok", 'data-value="90">90'))
    )
    columns = '<th>planned</th><th>state</th><th data-unit="number">records</th>'
    table = f"<table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>"
    body = f'<main><div class="plots" data-of="runs"></div><div id="runs">{table}</div></main>'
    assert show(plain, f"<!doctype html><head>{head}</head><body>{body}</body>") == []
    plain.get_by_role("img", name=words, exact=True).wait_for()


def test_the_bench_opens_the_list_of_a_real_database(browser: Any, postgres: Postgres) -> None:
    for figures in bench.measure(postgres, browser, pipelines=20).values():
        assert figures["status"].startswith("8 of 20 need a person")
        assert 0 < figures["response"] < figures["painted"]
        assert figures["loaded"] > figures["response"]
