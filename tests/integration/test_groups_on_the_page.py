"""Members of groups in the page's list of pipelines; without a service."""

import re

from tests.worlds.listed_pipelines import list_page, listed
from tidemark.airflow.page.pages import MOST_OK, Fold, _folded
from tidemark.operations.status import PipelineProblem, State, own_problems
from tidemark.views.pipelines import PipelineView


def failed(what: str) -> PipelineProblem:
    return PipelineProblem(None, what, "tidemark retry it", kind=State.FAILED)


def view(name: str, *problems: PipelineProblem) -> PipelineView:
    return listed(name, problems[0].kind if problems else State.OK, *problems)


def test_who_needs_nobody_is_folded_in_the_place_of_the_first_and_the_others_stay_rows() -> None:
    bad = view("shop.b", failed("no schema"))
    views = [bad, view("alone"), view("shop.a"), view("shop.c"), view("web.a")]
    problems = {each.pipeline_name: own_problems(each, ()) for each in views}
    assert _folded(views, views, problems) == [
        bad,
        views[1],
        Fold("shop: 2 ok, 1 needs you", healthy=False, query="group=shop"),
        Fold("web: 1 ok", healthy=True, query="group=web"),
    ]


def test_a_group_is_one_link_to_its_members() -> None:
    page = list_page([view("shop.b", failed("no schema")), view("shop.a"), view("shop.c"), view("web.a")])
    of_shop = '<a href="/tidemark/?group=shop"><span class="state failed">shop: 2 ok, 1 needs you</span></a>'
    of_web = '<a href="/tidemark/?group=web"><span class="state ok">web: 1 ok</span></a>'
    assert page.index("no schema") < page.index(of_shop) < page.index(of_web)
    assert re.findall(r"/pipelines/([a-z.]+)\"", page) == ["shop.b"]


def test_what_all_members_wait_for_stands_above_and_they_are_folded() -> None:
    what = "Kafka does not answer"
    silent = PipelineProblem(None, what, "start it", kind=State.UNKNOWN, shared_cause=what)
    page = list_page([view(f"shop.{name}", silent) for name in "abc"])
    assert page.count('<span class="state failed">shop: 0 ok, 3 need you</span>') == 1
    assert page.count(f"<strong>{what}</strong>") == 1


def test_a_silent_source_is_told_once_and_hides_no_other_problem() -> None:
    def problem(kind: State, manifest_id: int | None = None, silent: str | None = "kafka:9092") -> PipelineProblem:
        return PipelineProblem(manifest_id, "Kafka does not answer", "", kind=kind, silent=silent)

    told = [problem(State.FAILED), problem(State.FAILED, 7), problem(State.LATE, silent=None)]
    view = listed("orders", State.FAILED, *told, problem(State.UNKNOWN), problem(State.UNKNOWN, silent=None))
    assert own_problems(view, ()) == [*told, problem(State.UNKNOWN, silent=None)]


def test_many_pipelines_that_are_ok_are_one_row_and_a_few_are_not() -> None:
    bad, few = view("orders", failed("no schema")), [view(f"events-{number:02}") for number in range(MOST_OK)]
    problems = {each.pipeline_name: own_problems(each, ()) for each in (bad, *few, view("late"))}
    assert _folded([bad, *few], [bad, *few], problems) == [bad, *few]
    many = [*few, view("late")]
    assert _folded([bad, *many], [bad, *many], problems) == [
        bad,
        Fold(f"{MOST_OK + 1} ok", healthy=True, query="state=ok&group="),
    ]
    assert _folded(many, many, problems) == many, "there is nothing else to see"
