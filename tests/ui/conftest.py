"""A browser, logged in to a real Airflow. `make test-ui` runs these tests, and `make test` does not."""

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.browser import INSTALL, chromium
from tests.fixtures import plugin
from tests.ui.pictures import PICTURES, Picture, make_picture, viewport
from tests.worlds.airflow_world import AirflowWorld

SCREENSHOTS = "TIDEMARK_SCREENSHOTS"  # the folder of the documents' pictures, which are taken again
TERMINAL = """<pre style="display: inline-block; margin: 0; padding: 1rem; font: 15px/1.4 monospace; background: #fff;
color: #1c2128">{}</pre>"""
taken: set[str] = set()  # of the documents' pictures


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)
    sys.path.append(str(packages_of("browser")))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`make docs` fails when a picture of the documents was not taken."""
    if os.environ.get(SCREENSHOTS) and exitstatus == 0 and taken != set(PICTURES):
        print(f"\nno test has taken {', '.join(sorted(set(PICTURES) - taken))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = chromium()
    assert program is not None, f"no Chromium; install it: {INSTALL}"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    """Takes the screenshot of this name of a page, or of a part of one; `make docs` keeps those of the documents."""
    documents = os.environ.get(SCREENSHOTS)

    def take(shown: Any, name: str, **how: Any) -> None:
        screenshot = tmp_path / f"{name}.png"
        shown.screenshot(path=screenshot, **how)
        if documents and name in PICTURES:
            make_picture(screenshot, Path(documents) / screenshot.name)
            taken.add(name)

    return take


@pytest.fixture
def terminal(browser: Any, airflow_world: AirflowWorld, picture: Picture) -> Iterator[Callable[..., None]]:
    """Takes a picture of a command and what it prints on a terminal of 110 columns."""
    context = browser.new_context(viewport=viewport("wide"))
    window = context.new_page()

    def take(name: str, *words: str) -> None:
        command = [str(Path(sys.executable).with_name("tidemark")), *words]
        settings = {**airflow_world.world.environment(), "FORCE_COLOR": "1", "COLUMNS": "110"}
        printed = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True).stdout
        console = Console(record=True, file=io.StringIO(), width=110)
        console.print(Text.from_ansi(f"$ {shlex.join(['tidemark', *words])}\n{printed.rstrip()}"))
        window.set_content(TERMINAL.format(console.export_html(inline_styles=True, code_format="{code}")))
        picture(window.locator("pre"), f"{name}-terminal")

    yield take
    context.close()


@pytest.fixture
def page(browser: Any, airflow_world: AirflowWorld) -> Iterator[Any]:
    """A page of the browser, logged in to Airflow as its admin by the form that people use."""
    airflow = airflow_world.airflow
    context = browser.new_context(base_url=airflow.url, viewport=viewport("wide"))
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.on("framenavigated", lambda frame: print("opened", frame.url))  # shown when a test fails
    page.goto("/")
    page.get_by_label("Username").fill(airflow.user)
    page.get_by_label("Password").fill(airflow.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Tidemark", exact=True).wait_for()
    yield page
    context.close()
