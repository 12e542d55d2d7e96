"""The requests in the trigger form, or in the conf of a run, beside an ordinary plan."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from airflow.sdk import Param

from tidemark.airflow.list_limit import first_that_fit, refuse_over_limit, refuse_rest
from tidemark.airflow.log_lines import label
from tidemark.errors import ConfigurationError, NotDone
from tidemark.lifecycle.close import require_done
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import is_unfinished, own_manifest, refuse_at_work, unfinished
from tidemark.model.manifest import Decision, Manifest, count_of
from tidemark.operations import decisions
from tidemark.operations.audit import audit
from tidemark.operations.damage import accept_damage
from tidemark.operations.fill import alone
from tidemark.text import with_nearest
from tidemark.times.moments import with_zone


class Depth(StrEnum):
    """The part of the sinks that an audit reads."""

    LIGHT = "light"
    DEEP = "deep"


PARAMS = {
    "plan_until": Param(
        None, type=["null", "string"], format="date-time", title="Plan until",
        description="Read up to this moment (UTC without a zone) instead of the run's own date.",
    ),
    "replay": Param(
        [], type=["null", "array", "boolean"], items={"type": "integer"}, title="Replay these manifests",
        description="Their ids, such as [12, 13]. They are processed once more, and the new output replaces the "
        "published one. In a backfill's conf, true means all manifests that cover its interval.",
    ),
    "retry_unfinished": Param(
        False, type=["null", "boolean"], title="Retry manifests that are not done",
        description="Plan nothing new; process the manifests that are planned, failed or abandoned.",
    ),
    "retry": Param(
        [], type=["null", "array"], items={"type": "integer"}, title="Retry these manifests",
        description="Their ids, such as [12]. Plan nothing new; finish these, also blocked ones: a person has read the "
        "reasons.",
    ),
    "fill": Param(
        None, type=["null", "string"], title="Fill this sink",
        description="Its name. Plan nothing new; publish what the sink lacks to it alone.",
    ),
    "accept": Param(
        None, type=["null", "object"], title="Accept",
        description='A decision before planning: {"decision": "accept-loss", "why": "TEXT"}; accept-topic with '
        '"topic", accept-truncation with "topic" and "partition", accept-damage with "manifest" too.',
    ),
    "audit": Param(
        None, type=["null", "string"], enum=[None, *Depth], title="Audit",
        description="Plan nothing; compare what is recorded with what the sinks hold, light or deep: row by row.",
    ),
    "dry_run": Param(
        False, type=["null", "boolean"], title="Dry run",
        description="Only say in the log of plan what the run would do.",
    ),
}  # fmt: skip
PARAMS_OF_GROUP = {
    **PARAMS,
    "topics": Param(
        [], type=["null", "array"], items={"type": "string"}, title="Topics",
        description="Only these topics of the group, such as [shop.orders]; all of them when it is empty. A decision "
        "is about one of them.",
    ),
}  # fmt: skip
DECISIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "accept-loss": (),
        "accept-topic": ("topic",),
        "accept-truncation": ("topic", "partition"),
        "accept-damage": ("manifest",),
    }
)


def refuse_unknown(conf: Mapping[str, Any], known: Collection[str] = tuple(PARAMS)) -> None:
    """Raise for a key that no run knows: a misspelt key would start an ordinary run."""
    unknown = sorted(conf.keys() - set(known))
    if unknown:
        raise ConfigurationError(
            with_nearest(f"the conf of the run has {unknown[0]}, which is no parameter", unknown[0], known),
            next_step=f"nothing was planned; trigger it again with some of: {', '.join(known)}",
        )


def is_special(params: Mapping[str, Any]) -> bool:
    """Return whether the run was asked for something other than an ordinary run."""
    return any(params.get(name) for name in PARAMS)


def moment(text: str) -> datetime:
    """Return a time from the trigger form or a run's conf, in UTC if it has no zone. Airflow does not check the
    text.
    """
    try:
        time_ = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"plan_until is {text!r}, which is not a time",
            next_step="write it as 2024-03-01T11:00 (UTC) or 2024-03-01T11:00+01:00",
        ) from None
    return with_zone(time_)


def manifests_asked_for(context: Context, params: Mapping[str, Any]) -> list[int] | None:
    """Return the requested manifests, as many as one run can do; None if the run processes those that it plans."""
    if isinstance(params.get("replay"), list) and params["replay"]:
        return refuse_over_limit([manifest.id for manifest in _named(context, params["replay"])])
    if params.get("fill"):
        alone(context, params["fill"])
        return first_that_fit(context.database.publications.lacking(context.pipeline_name, params["fill"]))
    if params.get("retry"):
        named = _named(context, params["retry"])
        return refuse_over_limit([manifest.id for manifest in named if is_unfinished(context, manifest)])
    if params.get("retry_unfinished"):
        return first_that_fit([manifest.id for manifest in unfinished(context)])
    return None


def _named(context: Context, ids: Sequence[int]) -> list[Manifest]:
    """Return the manifests with these ids. Raises for a manifest of another pipeline, and for one with an attempt at
    work.
    """
    manifests = [own_manifest(context, manifest_id) for manifest_id in dict.fromkeys(ids)]
    refuse_at_work(manifests)
    return manifests


def release_named(context: Context, params: Mapping[str, Any]) -> None:
    """Release the blocked manifests that a retry names: you have looked at their reasons."""
    for manifest_id in params.get("retry") or ():
        unfinished(context, manifest_id)


def chooses_manifests(params: Mapping[str, Any]) -> bool:
    """Return whether a run processes other manifests than those that it plans, or only audits."""
    return any(params.get(name) for name in ("replay", "retry", "retry_unfinished", "fill", "audit"))


def require_chosen_done(context: Context, params: Mapping[str, Any], processed: Sequence[int]) -> bool:
    """Return whether manifests were requested. Raises if some are not published, or if more of them remain."""
    if not chooses_manifests(params):
        return False
    require_done(context, processed)
    if params.get("retry_unfinished"):
        refuse_rest(context, processed)
    if params.get("fill") and (lacking := context.database.publications.lacking(context.pipeline_name, params["fill"])):
        raise NotDone(
            f"sink {params['fill']} still lacks {count_of(len(lacking), 'manifest')}",
            next_step=f"trigger the fill again, or: tidemark fill {context.pipeline_name} {params['fill']} --why TEXT",
            sink=params["fill"],
        )
    return True


def accept(context: Context, wish: Mapping[str, Any], *, run_id: str = "", dry_run: bool) -> Decision:
    """Make the decision that ``wish`` names, as the command of the same name does. If Airflow repeats the task, nothing
    is decided a second time: the stored reason contains the id of the DAG run.

    Raises ``ConfigurationError`` if no command makes this decision, or if it lacks a value.
    """
    name = str(wish.get("decision"))
    if name not in DECISIONS:
        raise ConfigurationError(
            with_nearest(f"accept.decision is {name!r}, which is no decision", name, DECISIONS),
            next_step=f"write one of: {', '.join(DECISIONS)}",
        )
    kinds = {"partition": int, "manifest": int}
    words = ("why", *DECISIONS[name])
    missing = [word for word in words if wish.get(word) == "" or not isinstance(wish.get(word), kinds.get(word, str))]
    if missing:
        raise ConfigurationError(
            f"accept lacks {' and '.join(missing)}",
            next_step=f"write {', '.join(('decision', 'why', *DECISIONS[name]))}",
        )
    why = f"{wish['why']} (DAG run {run_id})" if run_id else wish["why"]
    if any(made["why"] == why for made in context.database.decisions.of_pipeline(context.pipeline_name)):
        return Decision((f"{name} was decided by this run before",), (), dry_run)
    match name:
        case "accept-loss":
            return decisions.accept_loss(context, why, dry_run=dry_run)
        case "accept-topic":
            return decisions.accept_topic(context, wish["topic"], why, dry_run=dry_run)
        case "accept-damage":
            return accept_damage(context, wish["manifest"], why, dry_run=dry_run)
    return decisions.accept_truncation(context, wish["topic"], wish["partition"], why, start=None, dry_run=dry_run)


def audit_lines(context: Context, depth: Depth) -> list[str]:
    """Audit the pipeline. Return the number of differences, and each difference with its next step."""
    differences = [problem.with_example() for problem in audit(context, deep=depth is Depth.DEEP)]
    return [f"the {depth} audit found {count_of(len(differences), 'difference')}", *map(str, differences)]


def refuse_differences(context: Context, params: Mapping[str, Any]) -> None:
    """Raise if the requested audit found differences: otherwise Airflow would show its run as a success."""
    if not params.get("audit"):
        return
    is_deep = params["audit"] == Depth.DEEP
    audits = context.database.audits.last(context.pipeline_name)
    differences = next((row["differences"] for row in audits if row["deep"] == is_deep), 0)
    if differences:
        raise NotDone(
            f"the {params['audit']} audit found {count_of(differences, 'difference')}",
            next_step="the log above, and the page of the pipeline, have each with its next step",
            pipeline=context.pipeline_name,
        )


def preview(context: Context, ids: Sequence[int]) -> list[str]:
    """Return what a dry run says of existing manifests."""
    manifests = context.database.manifests.find(ids=list(ids))
    return [f"would process {label(manifest.id, manifest.ranges)}" for manifest in manifests] or ["nothing to process"]


def sinks_of(context: Context, params: Mapping[str, Any]) -> Context:
    """Return the context of a task: only with the sink that is to be filled, or with all sinks."""
    return alone(context, params["fill"]) if params.get("fill") else context
