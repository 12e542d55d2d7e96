"""The list of the page with made-up pipelines: each state, groups, as many as are asked for. Needs no service."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark.airflow.page.actions import DagState
from tidemark.airflow.page.causes import cause_of_problem
from tidemark.airflow.page.pages import COLUMNS, Fold, _folded, _numbers
from tidemark.airflow.page.render import TEMPLATES
from tidemark.airflow.page.runs import DrawnRun, LagLine, lag_line
from tidemark.model.manifest import Counts, ManifestState
from tidemark.operations.status import (
    PipelineProblem,
    Retry,
    State,
    group_of,
    own_problems,
    shared_causes,
    worst_first,
)
from tidemark.views.pipelines import PipelineView

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
# What is wrong with a pipeline in each of these states, in words that messages of Tidemark have, and the next step.
WRONG = {
    State.BLOCKED: (
        (
            "nothing of payments-1 is planned since it was refused: topic payments was recreated: planned on id "
            "wQ3ePqJ0T5uTxX0, now 7hZk2mYqRq6b0aa"
        ),
        "if this change is intended: tidemark accept topic {} --topic payments --why TEXT",
    ),
    State.LOST: (
        (
            "retention took offsets [120400, 133871) of clicks-11 before they were planned; no run plans anything "
            "until a person decides"
        ),
        "tidemark accept loss {} --why TEXT",
    ),
    State.FAILED: (
        (
            "11 of 200 records cannot be used, and 5% may be dead letters: field amount: text where a DECIMAL(10,2) is "
            "expected; field at: absent [manifest=318 topic=orders partition=3 offset=88213]"
        ),
        (
            "nothing of this attempt is published. Look at them: tidemark peek {} --topic orders --partition 3 --from "
            "88213; correct the schema, then: tidemark retry {}"
        ),
    ),
    State.DAMAGED: (
        (
            "the audit of 2026-03-01 10:07 UTC found 3 differences, first manifest 291: a file with 14 rows is "
            "missing: raw/invoices/2026/03/01/09/0000000291.0001-00000.parquet"
        ),
        "tidemark replay {} --damaged; then: tidemark audit {}",
    ),
    State.DEAD_LETTERS: (
        "412 of the 480 records of the newest 2 manifests are dead letters",
        "tidemark dead-letters {}",
    ),
    State.STALE: (
        "all rows of manifest 301 were stale in sink current: a newer row of each key stood there",
        (
            "look at order_by of sink current: when its numbers have started again, write a sink with another one, "
            "then: tidemark fill {} NAME --why TEXT"
        ),
    ),
    State.LATE: (
        (
            "all that was stamped before 2026-03-01 05:00 UTC is published, which is 6 h 12 min ago; at most 2 h are "
            "allowed"
        ),
        "look at the runs of the DAG, or: tidemark run {}",
    ),
    State.UNKNOWN: (
        "the lag is not known: Kafka at kafka-3.internal:9092 has not answered within 1.5 s",
        "tidemark lag {}",
    ),
}
OTHERS = State.RETRYING, State.WORKING, State.WAITING, State.OK
TOPICS = "orders", "customers", "order_lines", "products", "prices", "stock", "shipments", "returns"
NAMES = "orders", "payments", "clicks", "invoices", "customers-current", "sessions", "prices", "shipments-eu-west-1"


def listed(name: str, state: State = State.OK, *problems: PipelineProblem) -> PipelineView:
    """A pipeline in this state, with the ``problems`` that make it so, or with one of that state."""
    if state in WRONG and not problems:
        what, next_step = WRONG[state]
        headline = what.partition(": ")[2] if state is State.DAMAGED else ""
        problems = (PipelineProblem(318 if state is State.FAILED else None, what, next_step.replace("{}", name),
                                    kind=state, headline=headline),)  # fmt: skip
    counts = dict.fromkeys(map(str, ManifestState), 0) | {"done": 317}
    if state in (State.FAILED, State.BLOCKED):
        counts[state.value] = 1
    retry = Retry(319, "Kafka does not answer within 10 s at kafka-3.internal:9092", NOW + timedelta(minutes=4))
    return PipelineView(
        pipeline_name=name, published_up_to=NOW - (6 * HOUR if problems else HOUR), max_age=2 * HOUR,
        lag=None if state is State.UNKNOWN else 13_471 if problems else 12, oldest_not_done=None,
        oldest_not_done_at=None, oldest_not_done_ranges=(), at_work=(320,) if state is State.WORKING else (),
        waiting=(321,) if state is State.WAITING else (), lost=120 if state is State.LOST else 0,
        dead_lettered=412 if state is State.DEAD_LETTERS else 0, newest=Counts(), audits=(), problems=problems,
        retries=(retry,) if state is State.RETRYING else (), leftover=None, unseen=(), planned=True, manifests=counts,
        last_done_at=NOW - HOUR, why_no_lag="the source has not answered" if state is State.UNKNOWN else None,
    )  # fmt: skip


def every_state(count: int) -> list[PipelineView]:
    """So many pipelines: the first ones fail or wait in each way, then come members of two groups, and others that are
    ok."""
    if count <= 3:
        return [listed(NAMES[0], State.FAILED), listed(NAMES[1], State.LATE), listed(NAMES[2])][:count]
    states = [*WRONG, *OTHERS]
    single = [
        listed(NAMES[number % 8] + f"-{number // 8}" * (number > 7), state) for number, state in enumerate(states)
    ]
    members = [listed(f"shop.{topic}", State.FAILED if topic == "prices" else State.OK) for topic in TOPICS]
    members += [listed(f"warehouse.{topic}") for topic in TOPICS]
    others = [listed(f"events-{number:03}") for number in range(count - len(single) - len(members))]
    return [*single, *members, *others]


def runs_of(view: PipelineView) -> tuple[list[DrawnRun], LagLine | None]:
    """The last 20 runs, of which the newest has the state of the pipeline."""
    words = ["ok"] * 15 + ["nothing new", "ok", "ok", "retrying" if view.problems else "ok", view.state.value]
    runs = [DrawnRun(number, NOW - (20 - number) * HOUR, word, 1, number) for number, word in enumerate(words)]
    lags = [{"lag": 900 + 300 * (number % 4) + (700 * number if view.problems else 0)} for number in range(20)]
    return runs, lag_line(lags)


def list_page(views: Sequence[PipelineView]) -> str:
    """The page as Airflow serves it."""
    views = sorted(views, key=worst_first)
    shared = shared_causes(views)
    problems = {view.pipeline_name: own_problems(view, shared) for view in views}
    rows = _folded(views, views, problems)
    own_rows = [row for row in rows if not isinstance(row, Fold)]
    numbers = {view.pipeline_name: _numbers(view) for view in own_rows}
    homes = {view.pipeline_name: group_of(view.pipeline_name) or view.pipeline_name for view in views}
    values: dict[str, Any] = {
        "new": [], "rows": rows, "numbers": numbers,
        "runs": {view.pipeline_name: runs_of(view) for view in own_rows},
        "columns": [column for column in COLUMNS if any(each[column] for each in numbers.values())],
        "causes": {name: cause_of_problem(own[0], None, [name]) for name, own in problems.items() if own},
        "shared": shared, "problems": problems, "pipelines": views, "first_plans": {}, "known": len(views),
        "wrong": sum(map(bool, problems.values())), "homes": homes,
        "dags": {dag: DagState(paused=False, next_run=NOW + HOUR) for dag in homes.values()},
        "name": "", "state": "", "group": None, "is_filtered": False, "states": list(State),
        "root": "/tidemark", "airflow": "",
    }  # fmt: skip
    return TEMPLATES.get_template("pipelines.html").render(**values)
