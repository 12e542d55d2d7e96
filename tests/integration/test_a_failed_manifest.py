"""docs/a-failed-manifest.md quotes what is printed: a table is broken and mended as the page says."""

import re
from collections.abc import Callable

from sandbox.bootstrap.checkout import CHECKOUT
from tests.worlds.table_world import TABLE_SCHEMA, TableWorld
from tidemark.airflow import log_lines
from tidemark.lifecycle.attempt import order_of

PAGE = (CHECKOUT / "docs" / "a-failed-manifest.md").read_text()
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00(:00)?| UTC)?"


def quoted() -> list[str]:
    """The lines of output on the page, without tables and without what it leaves out."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [line for line in lines if line[0] not in "│." and line != "published" and not line.startswith("flights")]


def masked(text: str) -> str:
    """Without times and numbers, which differ from run to run."""
    return re.sub(r"\d[\d,]*", "N", re.sub(TIME, "TIME", text))


def test_what_the_page_quotes_is_what_is_printed(make_table_world: Callable[..., TableWorld]) -> None:
    table = {"connection": "warehouse", "table": "sales.orders", "key": ["k"], "order_by": "n", "auto_create": True}
    world = make_table_world(has_lake=True, settings={"decode": {"format": "json", "schema": TABLE_SCHEMA}})
    world.settings["sinks"] = [
        {"files": {"root": str(world.lake), "layout": "raw/{stream}/%Y/%m/%d/%H"}},
        {"postgres": table},
    ]
    world.write_pipeline()
    world.produce(20)
    world.ok("run", "demo")
    world.execute("ALTER TABLE sales.orders ADD CONSTRAINT small_orders CHECK (n < 30)")
    world.produce(20)
    failed = world.here("run", "demo", "--run-key", "manual__2026-11-22T23:34:06.717644+00:00")
    assert failed.exit_code == 1
    status = world.here("status")
    assert status.exit_code == 1
    shown = world.ok("show", "2")
    for heading in re.findall(r"│ (attempt|sink) ", PAGE):
        assert re.search(rf"^┃ {heading} ", shown, re.MULTILINE)
    context = world.context()
    manifest = context.database.manifests.get(2)
    [labelled] = re.findall(r"`(manifest \d+ orders .*?)`", PAGE)
    order = order_of(context, manifest, 1)
    page = "http://127.0.0.1:24817/tidemark/pipelines/orders/manifests/2"
    begins = log_lines.begins(order, [sink.target for sink in context.sinks], page)
    world.execute("ALTER TABLE sales.orders DROP CONSTRAINT small_orders")
    retried = world.here("retry", "demo")
    assert retried.exit_code == 0
    audited = world.here("audit", "demo")
    assert world.here("status").exit_code == 0

    names = {world.topic: "orders", str(world.lake): ".tidemark/lake", "demo": "orders"}

    def printed(text: str) -> str:
        for name, same in names.items():
            text = text.replace(name, same)
        return masked(text)

    assert masked(labelled) == printed(log_lines.label(2, manifest.ranges))
    outputs = [*begins, *(result.stdout + result.stderr for result in (failed, status, retried, audited))]
    output = printed("\n".join(outputs).replace("error: ", "").replace("next:  ", "next: "))
    for line in quoted():
        for part in masked(line).split(".."):
            assert part.strip() in output, line
