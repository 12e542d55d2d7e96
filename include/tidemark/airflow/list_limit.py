"""The limit on manifests of one DAG run: Airflow makes at most ``[core] max_map_length`` tasks of one list."""

import logging
from collections.abc import Sequence

from airflow.configuration import conf

from tidemark.errors import ConfigurationError, NotDone
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import unfinished

log = logging.getLogger(__name__)


def longest_list() -> int:
    return int(conf.getint("core", "max_map_length", fallback=1024))


def refuse_over_limit(ids: Sequence[int]) -> list[int]:
    """Return the manifests of a run or a replay. Raises ``ConfigurationError`` if there are more than Airflow takes."""
    most = longest_list()
    if len(ids) > most:
        raise ConfigurationError(
            f"there are {len(ids)} manifests to process, and Airflow makes at most {most} tasks of one list",
            next_step=f"set AIRFLOW__CORE__MAX_MAP_LENGTH to {len(ids)} or more (scheduler, API server, workers), "
            "and clear this task",
        )
    return list(ids)


def first_that_fit(ids: Sequence[int]) -> list[int]:
    """Return as many of the unfinished manifests as one run can do. Call ``refuse_rest`` when they are done."""
    most = longest_list()
    if len(ids) > most:
        log.warning("%d manifests are not done; this run does the %d oldest", len(ids), most)
    return list(ids[:most])


def refuse_rest(context: Context, processed: Sequence[int]) -> None:
    """Raise if a retry did as many manifests as Airflow takes, and others are unfinished."""
    remaining = unfinished(context) if len(processed) >= longest_list() else []
    if remaining:
        raise NotDone(
            f"the {len(processed)} manifests of this run are published, and {len(remaining)} more are not done: "
            "Airflow makes no more tasks of one list",
            next_step=f"trigger the retry again until nothing is left, or: tidemark retry {context.pipeline_name}",
        )
