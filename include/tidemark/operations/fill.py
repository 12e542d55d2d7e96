"""Fills a sink that was added later: done manifests that it lacks are replayed, and published to that sink alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.errors import TidemarkError
from tidemark.lifecycle.attempt import Stage
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.work import Progress
from tidemark.model.json_values import NOT_IN_JSON, in_json
from tidemark.model.manifest import Decision, Manifest, count_of
from tidemark.model.problem import Problem
from tidemark.operations.replays import problems_of, replay_each
from tidemark.operations.sinks import sink_of_file


@dataclass(frozen=True)
class Filled:
    """The manifests that a sink got, or in a dry run would get, by id, oldest first; and the error of each that it
    cannot get.

    ``left`` were not tried, because the source or the sink did not answer.
    """

    sink: str
    dry_run: bool
    filled: tuple[int, ...]
    errors: Mapping[int, TidemarkError] = field(metadata=NOT_IN_JSON)
    left: tuple[int, ...]

    @property
    @in_json
    def not_filled(self) -> tuple[Problem, ...]:
        return problems_of(self.errors)


def alone(context: Context, sink_name: str) -> Context:
    """Return the context with this sink only. Raises ``NotFound`` if the pipeline file does not have the sink."""
    give_up = f"tidemark retire sink {context.pipeline_name} {sink_name} --why TEXT"
    sink = sink_of_file(context, sink_name, f"put it into the pipeline file; or, if it is given up: {give_up}")
    return replace(context, sinks=(sink,))


def fill(context: Context, sink_name: str, why: str, stage: Stage, progress: Progress, *, dry_run: bool) -> Filled:
    """Publish each done manifest that a sink lacks to this sink, oldest first. A failed manifest does not stop the
    others.

    Raises ``NotFound`` if the pipeline file does not have the sink.
    """
    database, of_sink = context.database, alone(context, sink_name)
    lacking = database.manifests.find(ids=database.publications.lacking(context.pipeline_name, sink_name))
    if lacking and not dry_run:
        with database.because(why):
            line = f"sink {sink_name} is filled with {count_of(len(lacking), 'manifest')} that it lacks"
            decision = Decision((line,), tuple(manifest.id for manifest in lacking))
            database.decisions.note(context.pipeline_name, "fill", decision)

    filled: list[int] = []

    def done(manifest: Manifest) -> None:
        filled.append(manifest.id)

    errors, left = replay_each(of_sink, lacking, stage, progress, done, dry_run=dry_run)
    return Filled(sink_name, dry_run, tuple(filled), errors, left)
