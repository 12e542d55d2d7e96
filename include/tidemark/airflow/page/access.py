"""Checks who may see and do what, by Airflow's own authorization, and that a change comes from a form of this page.

Airflow does not check the requests of an app that a plugin mounts: every route must name one of these dependencies.
"""

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow.api_fastapi.core_api.security import GetUserDep, get_user, requires_access_dag
from fastapi import Depends, HTTPException, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from tidemark.airflow import addresses
from tidemark.airflow.page.actions import DagState, dag_states
from tidemark.airflow.page.plan_tasks import PlanTask, Unplanned, dag_of, failed_runs, plan_tasks, unplanned
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import NotFound
from tidemark.lifecycle.context import refuse_out_of_use
from tidemark.model.manifest import Manifest
from tidemark.operations.status import InAirflow
from tidemark.pipeline.each_topic import split_name

FORM_LIFE = 3600  # seconds that a preview may be confirmed; what it shows may be old then

PlanTasks = Annotated[dict[str, PlanTask], Depends(plan_tasks)]


def _allowed(method: ResourceMethod, entity: DagAccessEntity | None = None) -> Any:
    """Return a dependency that answers 403 without this right on the DAG of pipeline ``dag_id``: its own DAG, or a
    larger one.
    """

    def check(request: Request, user: GetUserDep, tasks: PlanTasks, dag_id: str) -> None:
        requires_access_dag(method, entity, dag_of(dag_id, tasks))(request, user)

    return Depends(check)


def _may(method: ResourceMethod, entity: DagAccessEntity | None = None) -> Any:
    """Return a dependency that tells whether the caller has this right, by the rule of ``_allowed``. A page shows the
    buttons that need the right only then.
    """
    refuse = _allowed(method, entity).dependency

    def check(request: Request, user: GetUserDep, tasks: PlanTasks, dag_id: str) -> bool:
        try:
            refuse(request, user, tasks, dag_id)
        except HTTPException as refused:
            if refused.status_code != 403:
                raise
            return False
        return True

    return Depends(check)


LOGGED_IN = Depends(get_user)  # 401
MAY_READ = _allowed("GET")
MAY_START_RUNS = _allowed("POST", DagAccessEntity.RUN)
MAY_PAUSE = _allowed("PUT")
HAS_START_RIGHT = _may("POST", DagAccessEntity.RUN)
HAS_PAUSE_RIGHT = _may("PUT")
MayStart = Annotated[bool, HAS_START_RIGHT]
MayPause = Annotated[bool, HAS_PAUSE_RIGHT]


def opened_database(user: GetUserDep) -> Iterator[ManifestDatabase]:
    """Open the manifest database for one request; its history names the caller."""
    with ManifestDatabase(Environment.from_variables().database(), f"airflow page {user.get_name()}") as database:
        yield database


Database = Annotated[ManifestDatabase, Depends(opened_database)]


def readable_pipelines(database: Database, user: GetUserDep, tasks: PlanTasks) -> list[str]:
    """Return the pipelines that were planned and whose DAG the caller may read."""
    dags = get_auth_manager().get_authorized_dag_ids(user=user)
    return [name for name in database.pipelines.names() if dag_of(name, tasks) in dags]


ReadablePipelines = Annotated[list[str], Depends(readable_pipelines)]


def unplanned_pipelines(database: Database, user: GetUserDep, tasks: PlanTasks) -> list[Unplanned]:
    """Return the pipelines and members of groups that no plan has ever planned, and whose DAG the caller may read."""
    dags, names = get_auth_manager().get_authorized_dag_ids(user=user), database.pipelines.names(retired=True)
    planned = {*names, *(split_name(name)[0] for name in names)}
    new = {name: task for name, task in tasks.items() if name not in planned and task.dag_id in dags}
    refused = [name for name in database.tasks.pipelines_noted() if split_name(name)[1] and name not in planned]
    homes = {name: dag_of(name, tasks) for name in refused}
    of_groups = [Unplanned(name, dag_id, None, None) for name, dag_id in homes.items() if dag_id in dags]
    return [*(unplanned(new) if new else []), *of_groups]


UnplannedPipelines = Annotated[list[Unplanned], Depends(unplanned_pipelines)]


def listed_pipelines(readable: ReadablePipelines, new: UnplannedPipelines) -> list[str]:
    """Return the pipelines that were planned, then those without any successful plan."""
    return [*readable, *(each.pipeline for each in new)]


ListedPipelines = Annotated[list[str], Depends(listed_pipelines)]


def dags_of_listed(listed: ListedPipelines, tasks: PlanTasks) -> dict[str, DagState]:
    """Return the states of the DAGs of these pipelines, by DAG."""
    return dag_states([*{dag_of(name, tasks) for name in listed}])


ListedDags = Annotated[dict[str, DagState], Depends(dags_of_listed)]


def states_in_airflow(
    readable: ReadablePipelines, new: UnplannedPipelines, tasks: PlanTasks, known: ListedDags
) -> dict[str, InAirflow]:
    """Return what Airflow knows of the pipelines that the caller may read: of those that no plan has ever planned also
    a failed run that a user started.
    """
    planned = {name: tasks[name] for name in readable if name in tasks}
    first = {each.pipeline: tasks[each.pipeline] for each in new if each.pipeline in tasks}
    failed = failed_runs(planned, asked_for=False) if planned else {}
    failed |= failed_runs(first, asked_for=True) if first else {}
    dags = {name: dag_of(name, tasks) for name in (*readable, *first)}
    paused = {dag_id for dag_id, dag in known.items() if dag.paused}
    return {name: InAirflow(failed.get(name), dag if dag in paused else None) for name, dag in dags.items()}


class Renamed(Exception):
    """The pipeline has another name now. An address with the old name, in an old log or note, is redirected."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def lead_on(database: ManifestDatabase, dag_id: str) -> None:
    """Raise ``Renamed`` for a name that a pipeline had before."""
    for row in database.pipelines.former_names(dag_id):
        if row["name"] == dag_id:
            raise Renamed(row["pipeline"])


def own_pipeline(database: Database, dag_id: str) -> str:
    """Return the pipeline of a DAG. Raises ``NotFound`` if it was never planned, ``ConfigurationError`` if it is
    retired.
    """
    if dag_id not in database.pipelines.names():
        lead_on(database, dag_id)
        refuse_out_of_use(dag_id, database)
        raise NotFound(
            f"the pipeline {dag_id} was never planned",
            next_step=f"start a run of the DAG {dag_id}, if there is one; the log of its task plan says what it finds",
        )
    return dag_id


def own_manifest(database: Database, dag_id: str, manifest_id: int) -> Manifest:
    """Return a manifest of the DAG in the path: rights on one DAG give no rights on the manifests of another."""
    manifest = database.manifests.get(manifest_id)
    if manifest.pipeline_name != dag_id:
        lead_on(database, dag_id)
        raise NotFound(f"there is no manifest {manifest_id} of pipeline {dag_id}", next_step="list its manifests")
    return manifest


StatesInAirflow = Annotated[dict[str, InAirflow], Depends(states_in_airflow)]
PipelineName = Annotated[str, Depends(own_pipeline)]
OwnManifest = Annotated[Manifest, Depends(own_manifest)]


def refuse_forged(request: Request) -> None:
    """Answer 403 for a request from a page of another site. Browsers set both headers; scripts cannot change them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    ours = {request.headers.get("host"), urlsplit(addresses.airflow_address()).netloc} - {""}
    if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc not in ours):
        raise HTTPException(403, "this request comes from another site")


def signed(user_id: str, form: dict[str, Any]) -> str:
    """Return the token that a form sends back to confirm its preview. It is valid for this user, for an hour."""
    return _signer(user_id).dumps(form)


def confirmed(user_id: str, token: str) -> dict[str, Any]:
    """Return the preview that a form has confirmed. Answers 403 for a token of another user, an old one, or one from
    elsewhere.
    """
    try:
        form: dict[str, Any] = _signer(user_id).loads(token, max_age=FORM_LIFE)
    except BadSignature:
        raise HTTPException(403, "this form is not from this page, or older than an hour: open it again") from None
    return form


def _signer(user_id: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(get_signing_key("api", "secret_key"), salt=f"tidemark page {user_id}")
