"""The watcher of a pipeline with ``trigger``: in Airflow's triggerer, it starts a run when enough offsets wait.

All watchers of a triggerer share one look at the sources. Nothing is stored: the manifest database knows when a
pipeline was planned last. So a triggerer that starts again goes on, and a run too many finds nothing to do.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, AssetWatcher, CronTriggerTimetable
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from tidemark.airflow.lookup import airflow_lookup
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.operations.lags import Lags, ask_sources
from tidemark.pipeline.deployed import deployed_named
from tidemark.pipeline.settings import Pipeline
from tidemark.pipeline.trigger import POLL, Trigger

log = logging.getLogger(__name__)
_watched: Counter[str] = Counter()  # the pipelines whose watchers run in this process


@dataclass(frozen=True)
class Seen:
    """A look at one pipeline. ``lag`` is None if its source does not answer, which ``why`` explains; ``planned_ago`` is
    None if it was never planned.
    """

    trigger: Trigger
    lag: int | None
    planned_ago: timedelta | None
    why: str | None = None


def schedule_of(pipeline: Pipeline) -> Any:
    """Return the schedule of the DAG of a pipeline with a trigger: its watcher, and the times of its ``schedule``."""
    name = pipeline.name
    watcher = AssetWatcher(name=f"tidemark_{name}", trigger=LagTrigger(name))
    lag = Asset(name=f"tidemark_{name}_lag", uri=f"tidemark://pipeline/{name}/lag", watchers=[watcher])
    if pipeline.schedule is None:
        return [lag]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(pipeline.schedule, timezone="UTC"), assets=[lag])


class LagTrigger(BaseEventTrigger):
    """Fires when a run of the pipeline is due, and again while it stays due. It reads the settings from the pipeline's
    file.
    """

    def __init__(self, pipeline_name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline_name = pipeline_name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{LagTrigger.__module__}.{LagTrigger.__name__}", {"pipeline_name": self.pipeline_name}

    def shared_stream_key(self) -> str:
        return LagTrigger.__module__

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Mapping[str, Seen]]:
        """Yield a look at all watched pipelines, again and again; whatever fails, the next look may succeed."""
        del kwargs
        lags = Lags()
        while True:
            try:
                yield await asyncio.to_thread(look, set(_watched.elements()), lags)
            except TidemarkError as error:
                log.warning("it is not known how far pipelines are behind: %s", error)
            except Exception:
                log.exception("it is not known how far pipelines are behind")
            await asyncio.sleep(POLL.total_seconds())

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Mapping[str, Seen]]) -> AsyncIterator[Any]:
        """Yield an event for each look at which a run of this pipeline is due."""
        name, why, unanswered, fired_at = self.pipeline_name, None, 0, time.monotonic()
        _watched[name] += 1
        try:
            async for looks in shared_stream:
                seen = looks.get(name)
                if seen is None:
                    continue
                if seen.why not in (None, why):
                    log.warning("pipeline %s: the lag is not known: %s", name, seen.why)
                why, fired_ago = seen.why, timedelta(seconds=time.monotonic() - fired_at)
                if seen.planned_ago is not None and seen.planned_ago < fired_ago:
                    unanswered = 0
                if seen.trigger.is_due(seen.lag, seen.planned_ago, fired_ago, unanswered):
                    unanswered, fired_at = unanswered + 1, time.monotonic()
                    yield TriggerEvent({"lag": seen.lag, "planned_ago": str(seen.planned_ago)})  # type: ignore[no-untyped-call]
        finally:
            _watched[name] -= 1

    async def run(self) -> AsyncIterator[Any]:
        """Do the same alone, for an Airflow before 3.3, whose watchers share nothing."""
        async for event in self.filter_shared_stream(self.open_shared_stream({})):
            yield event


def look(names: Collection[str], lags: Lags) -> dict[str, Seen]:
    """Return how far these pipelines are behind, as far as their files have a trigger. Raises if the manifest
    database does not answer.
    """
    environment, triggers = Environment.from_variables(), dict[str, tuple[Pipeline, Trigger]]()
    for name in sorted(names):
        try:
            pipeline = deployed_named(environment.pipelines, name).pipeline
        except TidemarkError as error:
            log.warning("pipeline %s is not watched: %s", name, error)
            continue
        if isinstance(pipeline, Pipeline) and pipeline.trigger is not None:
            triggers[name] = pipeline, pipeline.trigger
    with ManifestDatabase(environment.database(), "airflow triggerer") as database:
        pipelines = {name: pipeline for name, (pipeline, _) in triggers.items()}
        answers = ask_sources(database, pipelines, cache(airflow_lookup), lags)
        now, planned = database.now(), {name: database.runs.planned_at(name)["last"] for name in triggers}
    return {
        name: Seen(
            trigger,
            None if (parts := answers[name].parts) is None else sum(part.lag for part in parts),
            None if planned[name] is None else now - planned[name],
            answers[name].why,
        )
        for name, (_, trigger) in triggers.items()
    }
