"""The steps of a run of a group: ``plan >> process (one mapped task per manifest of any member) >> close >> verdict``.

``close`` runs even if other tasks failed. It closes and announces the good members, so that one bad topic does not keep
the hours of the others open. ``verdict`` then fails if a member failed. Airflow drops the events of a failed task, so
these are two tasks.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from airflow.sdk import Asset, get_current_context, task

from tidemark.airflow import run_conf
from tidemark.airflow.bundles import Planned, bundled, flat
from tidemark.airflow.list_limit import longest_list
from tidemark.airflow.lookup import airflow_lookup, database_of
from tidemark.airflow.other_runs import wait_for_others
from tidemark.airflow.planned import manifests_of_run
from tidemark.airflow.runs import (
    Closed,
    CloseOperator,
    asset_of,
    close_pipeline,
    covered_by_run,
    hours_asset_of,
    manifests_to_process,
    process_tasks,
    push_labels_of,
    require_spark,
    run_ended_well,
    tick_of,
    would_process,
)
from tidemark.airflow.verdict import airflow_verdict, next_try
from tidemark.connections.lookup import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, NotDone, TidemarkError, about
from tidemark.lifecycle.context import Context, open_context
from tidemark.lifecycle.failed_tasks import Task, watched
from tidemark.lifecycle.members import Members, for_each_member, refuse_failed
from tidemark.model.manifest import RunKind
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import member

log = logging.getLogger(__name__)
FAILED = "failed"  # the XCom of plan and close: the error of each failed member
ASKED_FOR = ("replay", "retry")  # lists of manifests, which may be of any member
PlannedMember = tuple[list[int], list[str]]


class CloseGroupOperator(CloseOperator):
    def execute(self, context: Any) -> None:
        closed, failed = close_group(self.pipeline, self.planned)
        context["ti"].xcom_push(FAILED, failed)
        tell(self.pipeline, closed, context["outlet_events"])


def group_tasks(group: Group, problem: TidemarkError | None, process: Mapping[str, Any]) -> None:
    """Create the tasks of a group of topics (``plan``, ``process``, ``close``, ``verdict``) in the DAG or Airflow task
    group that the caller has open.
    """

    @task
    def plan() -> list[Planned]:
        return plan_group(group, problem)

    @task(trigger_rule="all_done", retries=0)
    def verdict() -> None:
        judge_group(group)

    planned: Any = plan()
    processed = process_tasks(group, planned, process)
    closing: Any = CloseGroupOperator(pipeline=group, planned=planned, trigger_rule="all_done")
    judging: Any = verdict()
    processed >> closing
    [planned, processed, closing] >> judging


def plan_group(group: Group, problem: TidemarkError | None = None) -> list[Planned]:
    """Return manifest ids of all members, or bundles of them. ``verdict`` reports the members that cannot be planned;
    the plan itself fails only if no member can be planned.
    """
    task_context: Any = get_current_context()
    params = task_context["params"]
    only = [str(topic) for topic in params.get("topics") or ()]
    dry_run = bool(params.get("dry_run"))
    special = run_conf.is_special(params)
    like_the_next = not special and tick_of(task_context).kind is not RunKind.BACKFILL
    watching = watched(
        lambda: database_of(task_context), group.name, Task.PLAN,
        like_the_next=like_the_next, next_try=next_try(task_context),
    )  # fmt: skip
    with airflow_verdict(), about(pipeline=group.name), nullcontext() if dry_run else watching:
        if not group.shared.airflow.own_dag:
            run_conf.refuse_unknown(task_context["dag_run"].conf or {}, tuple(run_conf.PARAMS_OF_GROUP))
        if problem:
            raise problem
        if params.get("accept") and len(only) != 1:
            raise ConfigurationError(
                f"accept needs exactly one topic of the group; this run names {len(only)}",
                next_step='name it: trigger it again with "topics": [TOPIC]',
            )
        with database_of(task_context) as database:
            members = _planned_members(group, database, task_context, only, like_the_next=like_the_next)
            return _handed_to_airflow(group, database, task_context, members)


def _planned_members(
    group: Group, database: ManifestDatabase, task_context: Any, only: list[str], *, like_the_next: bool
) -> Members[PlannedMember]:
    params = task_context["params"]
    named = _named_manifests(group, database, params)

    def planned(context: Context, members: int) -> PlannedMember:
        own_context = _context_of(task_context, named, context.pipeline_name)
        if own_context is None:
            return [], []
        share = max(1, longest_list() * group.shared.airflow.bundle // members)
        context = _with_share(context, share)
        if task_context["params"].get("dry_run"):
            for line in would_process(context, context.pipeline, own_context):
                log.info("%s: %s", context.pipeline_name, line)
            return [], []
        require_spark(context.pipeline, context)
        ids, notes = manifests_to_process(context, context.pipeline, own_context, share)
        if params.get("audit"):
            try:
                run_conf.refuse_differences(context, params)
            except TidemarkError:
                for line in notes:  # for members that go on, the notes are logged with the list
                    log.warning("%s: %s", context.pipeline_name, line)
                raise
        return ids, notes

    return for_each_member(
        group, database, cache(airflow_lookup), lambda: database_of(task_context), planned, only=only,
        like_the_next=like_the_next, noted=not task_context["params"].get("dry_run"), next_try=next_try(task_context),
    )  # fmt: skip


def _named_manifests(
    group: Group, database: ManifestDatabase, params: Mapping[str, Any]
) -> dict[str, dict[str, list[int]]] | None:
    """Return, by member, the manifests that the form names below ``replay`` and ``retry``; None if it names none."""
    wishes = {wish: params[wish] for wish in ASKED_FOR if isinstance(params.get(wish), list) and params[wish]}
    named: dict[str, dict[str, list[int]]] = {}
    for wish, ids in wishes.items():
        for manifest_id in dict.fromkeys(ids):
            name = database.manifests.get(manifest_id).pipeline_name
            owner, topic = split_name(name)
            if owner != group.name or topic is None:
                raise ConfigurationError(
                    f"manifest {manifest_id} is of pipeline {name}, and not of group {group.name}",
                    next_step=f"trigger the DAG {owner} with it, or name manifests of this group",
                )
            named.setdefault(name, {}).setdefault(wish, []).append(manifest_id)
    return named if wishes else None


def _context_of(task_context: Any, named: dict[str, dict[str, list[int]]] | None, name: str) -> Any:
    """Return Airflow's context with the manifests that the form names for one member; None if it names none of this
    member.
    """
    if named is None:
        return task_context
    if name not in named:
        return None
    wishes = {wish: named[name].get(wish, []) for wish in ASKED_FOR}
    return {**task_context, "params": {**task_context["params"], **wishes}}


def _with_share(context: Context, share: int) -> Context:
    """Return the context with at most ``share`` slices in a run: Airflow makes at most ``max_map_length`` tasks for all
    members. Bundles of large manifests hold fewer; the next run then does the others.
    """
    source = context.pipeline.source
    most = min(source.slice.max_slices, share)
    slices = source.slice.model_copy(update={"max_slices": most})
    pipeline = context.pipeline.model_copy(update={"source": source.model_copy(update={"slice": slices})})
    return replace(context, pipeline=pipeline)


def _handed_to_airflow(
    group: Group, database: ManifestDatabase, task_context: Any, members: Members[PlannedMember]
) -> list[Planned]:
    failed = {name: error.what for name, error in members.failed.items()}
    task_context["ti"].xcom_push(FAILED, failed)
    notes = [f"{name}: {line}" for name, (_, (_, lines)) in members.done.items() for line in lines]
    notes += [f"{name}: {what}" for name, what in failed.items()]
    for line in notes:
        log.warning(line)
    if not members.done:
        refuse_failed(group.name, failed)
    ids = [manifest_id for _, (own, _) in members.done.values() for manifest_id in own]
    tasks, most = _tasks(group, database, ids), longest_list()
    if len(tasks) > most:  # the oldest first: otherwise the last members would wait for ever
        tasks = _tasks(group, database, sorted(ids))[:most]
        log.warning(
            "%d manifests are to be processed; this run does the %d oldest, the next one others",
            len(ids), sum(map(len, tasks)),
        )  # fmt: skip
    push_labels_of(database, task_context, group.name, tasks, notes)
    return [*(tasks if group.shared.airflow.bundle > 1 else flat(tasks))]


def _tasks(group: Group, database: ManifestDatabase, ids: list[int]) -> list[list[int]]:
    """Return the manifests of each task of ``process``, in order."""
    shared = group.shared
    if shared.airflow.bundle == 1:
        return [[each] for each in ids]
    by_id = {manifest.id: manifest for manifest in database.manifests.find(ids=ids)} if ids else {}
    return bundled([by_id[each] for each in ids], shared.airflow.bundle, shared.spark.records_per_task)


def close_group(group: Group, planned: list[Planned] | None) -> tuple[dict[str, Closed], dict[str, str]]:
    """Close each member that this run has planned or worked on. Return the closed members, and the errors of the
    others, by name.
    """
    task_context: Any = get_current_context()
    closed: dict[str, Closed] = {}
    failed: dict[str, str] = {}
    if task_context["params"].get("dry_run"):
        return closed, failed
    lookup = cache(airflow_lookup)
    with airflow_verdict(), about(pipeline=group.name), database_of(task_context) as database:
        processed = manifests_of_run(database, group.name, task_context["ti"]) if planned is None else flat(planned)
        worked_on, tick = _worked_on(group, database, task_context, processed), tick_of(task_context)
        covered = [
            covered_by_run(database, name, _params_of(task_context, own), tick) for name, own in worked_on.items()
        ]
        wait_for_others(task_context, database, list(chain.from_iterable(covered)), also_replays=False)
        for name, own in worked_on.items():
            try:
                closed[name] = _close_member(group, name, database, lookup, task_context, own)
            except TidemarkError as error:
                log.error("%s: %s", name, error)
                failed[name] = error.what
    return closed, failed


def _worked_on(group: Group, database: ManifestDatabase, task_context: Any, planned: list[int]) -> dict[str, list[int]]:
    """Return, by member, the manifests that this run has processed; also members that it planned without any new
    manifest.
    """
    run_key = tick_of(task_context).run_key
    members: dict[str, list[int]] = {}
    for manifest in database.manifests.find(ids=planned) if planned else []:
        members.setdefault(manifest.pipeline_name, []).append(manifest.id)
    for name in database.pipelines.names():
        owner, topic = split_name(name)
        if owner == group.name and topic is not None and database.runs.find(name, run_key) is not None:
            members.setdefault(name, [])
    return members


def _close_member(
    group: Group, name: str, database: ManifestDatabase, lookup: Lookup, task_context: Any, own: list[int]
) -> Closed:
    watching = watched(lambda: database_of(task_context), name, Task.CLOSE, next_try=next_try(task_context))
    with watching, about(pipeline=name):
        context = open_context(member(group, split_name(name)[1] or name), database, lookup)
        params = _params_of(task_context, own)
        return close_pipeline(context, task_context, own, params, closed_well(task_context))


def _params_of(task_context: Any, own: list[int]) -> Mapping[str, Any]:
    """Return what the form asked of a member: one without manifests in it is closed as in an ordinary run."""
    params: Mapping[str, Any] = task_context["params"]
    return params if own else {**params, **dict.fromkeys(ASKED_FOR, None)}


def closed_well(task_context: Any) -> Callable[[str], bool | None]:
    """Return a function that tells whether another run has announced its hours: whether its ``close`` succeeded, even
    if the run failed by one bad topic. None while the run is open.
    """
    instance, ended_well = task_context["ti"], run_ended_well(task_context)

    def told(run_id: str) -> bool | None:
        states = instance.get_task_states(instance.dag_id, task_ids=[instance.task_id], run_ids=[run_id])
        if "success" in states.get(run_id, {}).values():
            return True
        return None if ended_well(run_id) is None else False

    return told


def tell(group: Group, closed: Mapping[str, Closed], outlet_events: Any) -> None:
    """Emit an event of the group's asset, and events of each member's own assets.

    The assets of members were not known when the DAG was parsed, so they become outlets now. Airflow accepts the event
    of such an asset if a DAG waits for it, and drops it otherwise.
    """
    told = {name: each.event for name, each in closed.items() if each.event is not None}
    outlets: list[Asset] = []
    if told:
        outlet_events[asset_of(group.name)].extra = {
            "members": sorted(told),
            "written": sum(event["written"] for event in told.values()),
        }
        outlets.append(asset_of(group.name))
    for name, each in closed.items():
        if each.event is not None:
            own = asset_of(name)
            outlet_events[own].extra = each.event
            outlets.append(own)
        if each.hours:
            hours = hours_asset_of(name)
            outlet_events[hours].add_partitions(each.hours)
            outlets.append(hours)
    closing: Any = get_current_context()["ti"].task
    closing.outlets = outlets


def judge_group(group: Group) -> None:
    """Fail if a member or a task of the run has failed: ``close`` runs even if something failed before it."""
    task_context: Any = get_current_context()
    instance = task_context["ti"]
    before = instance.task_id.removesuffix("verdict")
    tasks = [f"{before}{name}" for name in ("plan", "process", "close")]
    with airflow_verdict(), about(pipeline=group.name):
        told = {of_task: instance.xcom_pull(task_ids=of_task, key=FAILED) for of_task in (tasks[0], tasks[2])}
        refuse_failed(group.name, {name: what for failed in told.values() for name, what in (failed or {}).items()})
        run_id = task_context["dag_run"].run_id
        states = instance.get_task_states(instance.dag_id, task_ids=tasks, run_ids=[run_id]).get(run_id, {})
        in_order = [name for task in tasks for name in sorted(states) if name.startswith(task)]  # also of mapped tasks
        wrong = [name for name in in_order if states[name] in ("failed", "upstream_failed")]
        if wrong:
            raise NotDone(
                f"{', '.join(wrong[:10])} of this run failed",
                next_step=f"read the log of the task {wrong[0]}, correct the cause, then clear that task",
            )
        silent = [of_task for of_task, failed in told.items() if failed is None]
        if silent:
            raise NotDone(
                f"it is unknown which topics failed: the result of {' and '.join(silent)} of this run was removed",
                next_step=f"clear {silent[0]}, which stores its result again, as after airflow db clean",
            )
