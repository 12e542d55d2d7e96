"""The decision to append other rows of a manifest to a target that is only appended to, behind its earlier rows."""

from collections.abc import Sequence

from tidemark.errors import NotFound
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Decision, Manifest
from tidemark.sinks.base import WriteMode


def note_append_again(context: Context, manifests: Sequence[Manifest], why: str) -> dict[int, dict[str, int]]:
    """Write the decision into the history. Return, for each manifest, its sinks with the attempt that each shows now: a
    replay may follow only this attempt.

    Raises ``NotFound`` if no sink that appends has rows of these manifests.
    """
    sinks = [sink for sink in context.sinks if sink.write_mode is WriteMode.APPEND]
    follows: dict[int, dict[str, int]] = {}
    lines = []
    for manifest in manifests:
        for sink in sinks:
            published = manifest.published(sink.name)
            # What a retired sink has appended no longer counts as published, but stays in the target.
            shown = published.attempt if published else sink.ledger.recorded_attempt(manifest.id)
            if shown is not None:
                follows.setdefault(manifest.id, {})[sink.name] = shown
                lines.append(
                    f"a replay of manifest {manifest.id} may append other rows to {sink.target}, behind those of "
                    f"attempt {shown}, which stay there"
                )
    if not lines:
        raise NotFound(
            "no sink that only appends has rows of these manifests",
            next_step="replay without --append-again: the other sinks replace what they have",
        )
    with context.database.because(why):
        context.database.decisions.note(context.pipeline_name, "append-again", Decision(tuple(lines), tuple(follows)))
    return follows
