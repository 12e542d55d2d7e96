"""A browser, logged in to a real Airflow. `make test-ui` runs these tests, and `make test` does not."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.browser import INSTALL, chromium
from tests.fixtures import plugin
from tests.worlds.airflow_world import AirflowWorld

SCREENSHOTS = "TIDEMARK_SCREENSHOTS"
DOCUMENTED = ("pipelines-wide-light", "pipeline-wide-light", "retry-wide-light", "pipeline-phone-dark")
OF_THE_TUTORIAL = "tutorial-"


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)
    sys.path.append(str(packages_of("browser")))


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
def picture(tmp_path: Path) -> Callable[[str], Path]:
    """Where the screenshot of this name goes: with `make docs` those that documents show go into their folder."""
    documents = os.environ.get(SCREENSHOTS)

    def file(name: str) -> Path:
        shown = name in DOCUMENTED or name.startswith(OF_THE_TUTORIAL)
        return (Path(documents) if documents and shown else tmp_path) / f"{name}.png"

    return file


@pytest.fixture
def page(browser: Any, airflow_world: AirflowWorld) -> Iterator[Any]:
    """A page of the browser, logged in to Airflow as its admin by the form that people use."""
    airflow = airflow_world.airflow
    context = browser.new_context(base_url=airflow.url, viewport={"width": 1280, "height": 900})
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
