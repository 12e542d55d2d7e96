"""The decision to append other rows behind what a sink that only appends has of a manifest."""

from collections.abc import Sequence

from tidemark.errors import NotFound
from tidemark.lifecycle.context import Context
from tidemark.model.manifest import Decision, Manifest
from tidemark.sinks.base import WriteMode


def note_append_again(context: Context, manifests: Sequence[Manifest], why: str) -> dict[int, dict[str, int]]:
    """Write it into the history. Returns for each manifest the sinks, and the attempt that each of them shows now: a
    replay may follow this attempt and no other.

    Raises ``NotFound`` when no sink that appends has anything of these manifests.
    """
    sinks = [sink for sink in context.sinks if sink.write_mode is WriteMode.APPEND]
    follows: dict[int, dict[str, int]] = {}
    lines = []
    for manifest in manifests:
        for sink in sinks:
            published = manifest.published(sink.name)
            # What a retired sink has appended there is not published any more, and stays.
            shown = published.attempt if published else sink.ledger.recorded_attempt(manifest.id)
            if shown is not None:
                follows.setdefault(manifest.id, {})[sink.name] = shown
                lines.append(
                    f"a replay of manifest {manifest.id} may append other rows to {sink.target}, behind those of "
                    f"attempt {shown}, which stay there"
                )
    if not lines:
        raise NotFound(
            "no sink that only appends has anything of it",
            next_step="replay without --append-again: the other sinks replace what they have",
        )
    with context.database.because(why):
        context.database.decisions.note(context.pipeline_name, "append-again", Decision(tuple(lines), tuple(follows)))
    return follows
