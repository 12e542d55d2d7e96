"""Members of groups in the page's list of pipelines; without a service."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tidemark.airflow.page.pages import COLUMNS, Fold, _folded
from tidemark.airflow.page.render import TEMPLATES
from tidemark.model.manifest import Counts, ManifestState
from tidemark.operations.status import PipelineProblem, SharedCause, State, own_problems, shared_causes
from tidemark.views.pipelines import PipelineView

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def view(name: str, *problems: PipelineProblem) -> PipelineView:
    return PipelineView(
        pipeline_name=name, published_up_to=NOW, max_age=None, lag=0, oldest_not_done=None, oldest_not_done_at=None,
        oldest_not_done_ranges=(), at_work=(), waiting=(), lost=0, dead_lettered=0, newest=Counts(), audits=(),
        problems=problems, retries=(), leftover=None, unseen=(), planned=True,
        manifests={state.value: 0 for state in ManifestState}, last_done_at=NOW, why_no_lag=None,
    )  # fmt: skip


def failed(what: str) -> PipelineProblem:
    return PipelineProblem(None, what, "tidemark retry it", kind=State.FAILED)


def rendered(views: Sequence[PipelineView], shared: Sequence[SharedCause] = ()) -> str:
    problems = {each.pipeline_name: own_problems(each, shared) for each in views}
    values: dict[str, Any] = {
        "new": [], "rows": _folded(views, views, problems), "runs": {}, "columns": [],
        "numbers": {each.pipeline_name: dict.fromkeys(COLUMNS, 0) for each in views},
        "causes": {name: {"what": of[0].what, "reasons": [], "place": "", "manifest_id": None, "steps": []}
                   for name, of in problems.items() if of},
        "shared": shared, "problems": problems, "pipelines": views, "first_plans": {}, "known": len(views),
        "wrong": sum(map(bool, problems.values())), "homes": {name: name.partition(".")[0] for name in problems},
        "dags": {}, "name": "", "state": "", "states": tuple(State), "root": "/tidemark", "airflow": "",
    }  # fmt: skip
    return TEMPLATES.get_template("pipelines.html").render(**values)


def test_who_needs_nobody_is_folded_in_the_place_of_the_first_and_the_others_stay_rows() -> None:
    bad = view("shop.b", failed("no schema"))
    views = [bad, view("alone"), view("shop.a"), view("shop.c"), view("web.a")]
    problems = {each.pipeline_name: own_problems(each, ()) for each in views}
    rows = _folded(views, views, problems)
    names = [row.group if isinstance(row, Fold) else row.pipeline_name for row in rows]
    assert names == ["shop.b", "alone", "shop", "web"]
    shop = rows[2]
    assert isinstance(shop, Fold)
    assert (shop.words, shop.healthy) == ("shop: 2 ok, 1 needs you", False)
    assert [each.pipeline_name for each in shop.members] == ["shop.a", "shop.c"]


def test_a_group_opens_without_a_script() -> None:
    page = rendered([view("shop.b", failed("no schema")), view("shop.a"), view("shop.c"), view("web.a")])
    shop, web = re.findall(r"<details data-group=.*?</details>", page, re.DOTALL)
    assert '<span class="state failed">shop: 2 ok, 1 needs you</span></summary>' in shop
    assert '<span class="state ok">web: 1 ok</span></summary>' in web
    assert "1 topic of it has a row above." in shop
    assert " above." not in web
    for name in ("shop.a", "shop.c"):
        assert f'<a href="/tidemark/pipelines/{name}">{name}</a>' in shop
    assert "shop.b" not in shop
    assert page.index("no schema") < page.index("<details")


def test_what_all_members_wait_for_stands_above_and_they_are_folded() -> None:
    what = "Kafka does not answer"
    silent = PipelineProblem(None, what, "start it", kind=State.UNKNOWN, shared_cause=what)
    views = [view(f"shop.{name}", silent) for name in "abc"]
    shared = shared_causes(views)
    page = rendered(views, shared)
    assert page.count("<details") == len(shared) == 1
    assert '<span class="state failed">shop: 0 ok, 3 need you</span>' in page
    assert " of it have rows above" not in page
