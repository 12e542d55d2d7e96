"""``tidemark monitor metrics --listen``: what a scraper gets, also while the database does not answer."""

import signal
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from sandbox.services.processes import free_port, port_answers, wait_until
from tests.worlds.world import World, wait_ended


def scraped(port: int, path: str = "/metrics") -> tuple[int, str, str]:
    """(status, content type, text)."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers["content-type"], refused.read().decode()


def test_each_scrape_measures_again_and_ctrl_c_ends_it(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.produce(10)
    world.ok("run", "demo")
    port = free_port()
    serving = world.start("monitor", "metrics", "demo", "--listen", str(port))
    wait_until(lambda: port_answers(port), "the port", timeout=60)
    status, kind, text = scraped(port)
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text == world.ok("monitor", "metrics", "demo")
    assert 'tidemark_records_read{pipeline="demo"} 10' in text
    world.produce(5)
    world.ok("run", "demo")
    assert 'tidemark_records_read{pipeline="demo"} 15' in scraped(port)[2]
    assert scraped(port, "/")[0] == 404
    serving.send_signal(signal.SIGINT)
    ended = wait_ended(serving)
    assert (ended.returncode, ended.stderr) == (0, f"http://127.0.0.1:{port}/metrics\n")


def test_a_database_that_is_gone_is_a_503_with_its_reason(make_world: Callable[..., World]) -> None:
    world = make_world()
    port = free_port()
    world.dsn += "-gone"
    serving = world.start("monitor", "metrics", "--listen", f"127.0.0.1:{port}")
    wait_until(lambda: port_answers(port), "the port", timeout=60)
    status, _, text = scraped(port)
    assert status == 503
    assert text.startswith("the manifest database refuses this client: ")
    assert "\nnext: " in text
    serving.send_signal(signal.SIGINT)
    assert wait_ended(serving).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--listen", "here"), "'here' has no port; write 9108 or 0.0.0.0:9108"),
        (("--listen", "70000"), "'70000' has no port"),
        (("--listen", "9108", "--json"), "--listen serves OpenMetrics text"),
        (("--listen", "192.0.2.1:9108"), "cannot listen on 192.0.2.1:9108"),
    ],
)
def test_what_cannot_be_listened_on_is_said(
    make_world: Callable[..., World], words: tuple[str, ...], message: str
) -> None:
    refused = make_world().here("monitor", "metrics", *words)
    assert refused.exit_code != 0
    assert message in refused.stderr
