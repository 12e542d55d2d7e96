"""Compares what the manifest database and a target say about one manifest in one sink.

``judge`` is the only place that decides whether the two agree. Planning, attempts, ``retry``, ``audit``, ``repair``,
``db adopt`` and decisions all use it, so they cannot disagree. Every case has one verdict, and every verdict has one
next step; ``docs/verdicts.md`` is the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Verdict(StrEnum):
    """The verdict on one manifest in one sink. Evidence is what an attempt writes into a target when its output is
    whole: a record in a lake, a marker row in a table."""

    IN_STEP = "in step"
    UNSTARTED = "unstarted"
    MARK_MISSING = "mark missing"
    SUPERSEDED = "superseded evidence"
    UNKNOWN = "evidence unknown"
    EVIDENCE_MISSING = "evidence missing"
    DAMAGED = "damaged"
    BEHIND = "behind"
    UNFILLED = "not filled"


class NextStep(StrEnum):
    """The next step that makes database and target agree; the values are commands, except for the first two."""

    NOTHING = "nothing"
    ATTEMPT = "the next attempt"
    RETRY = "retry"
    REPLAY = "replay"
    ADOPT = "adopt"
    FILL = "fill"


@dataclass(frozen=True)
class Known:
    """The state of a manifest and a sink as the database knows it.

    ``receipts`` maps each attempt with a receipt for the sink to the digest of its output. ``taken_back`` are the
    attempts whose output may have been removed in part. ``behind``: a newer attempt is published in another sink, and
    should have written to this one too. ``done``: the manifest is done. ``given_up``: you have accepted what the sink
    lacks.
    """

    receipts: Mapping[int, str]
    taken_back: frozenset[int] = frozenset()
    published: int | None = None
    behind: bool = False
    done: bool = False
    given_up: bool = False


@dataclass(frozen=True)
class Shown:
    """The state of a manifest as the target shows it; ``evidence`` is the highest attempt with evidence, or None.

    ``digest`` is the one in the evidence; None if it cannot be read, or names other offsets than the manifest has.
    ``whole``: everything that the receipt of that attempt names is there. ``published_whole``: the same for the
    published attempt, without what you have accepted as damaged.
    """

    evidence: int | None = None
    digest: str | None = None
    whole: bool = False
    published_whole: bool = False


def judge(known: Known, shown: Shown, *, takes_back: bool) -> Verdict:
    """Return the verdict on one manifest in one sink; ``takes_back``: output of this sink can be removed again.

    No attempt at the manifest may be alive: evidence comes before the mark, so judge again when the attempt has ended.
    """
    evidence, published = shown.evidence or 0, known.published or 0
    if evidence and evidence >= published and _is_unknown(known, shown, evidence):
        return Verdict.UNKNOWN
    if evidence > published:
        if takes_back and (evidence in known.taken_back or shown.digest is None or not shown.whole):
            return Verdict.SUPERSEDED
        return Verdict.MARK_MISSING
    if known.given_up:
        return Verdict.IN_STEP
    if not published:
        return Verdict.UNFILLED if known.done else Verdict.BEHIND if known.behind else Verdict.UNSTARTED
    if not shown.published_whole:
        return Verdict.DAMAGED
    if evidence < published or shown.digest is None:
        return Verdict.EVIDENCE_MISSING if takes_back else Verdict.DAMAGED
    return Verdict.BEHIND if known.behind else Verdict.IN_STEP


def _is_unknown(known: Known, shown: Shown, evidence: int) -> bool:
    """Return whether the database has no receipt that matches the evidence. A record that cannot be read counts as the
    one of the attempt in its name."""
    if evidence not in known.receipts:
        return True
    return shown.digest is not None and shown.digest != known.receipts[evidence]


def next_step_of(verdict: Verdict) -> NextStep:
    """Return the one next step of a verdict."""
    match verdict:
        case Verdict.IN_STEP:
            return NextStep.NOTHING
        case Verdict.UNSTARTED:
            return NextStep.ATTEMPT
        case Verdict.MARK_MISSING | Verdict.SUPERSEDED | Verdict.EVIDENCE_MISSING | Verdict.BEHIND:
            return NextStep.RETRY
        case Verdict.DAMAGED:
            return NextStep.REPLAY
        case Verdict.UNKNOWN:
            return NextStep.ADOPT
        case Verdict.UNFILLED:
            return NextStep.FILL
        case _:
            assert_never(verdict)


def command(step: NextStep, pipeline_name: str, manifest_id: int | None, sink_name: str) -> str:
    """Return the step as a command that can be copied; empty if there is nothing to do."""
    match step:
        case NextStep.NOTHING:
            return ""
        case NextStep.ATTEMPT | NextStep.RETRY:
            return f"tidemark retry {pipeline_name}"
        case NextStep.REPLAY:
            return f"tidemark replay {pipeline_name} --manifest {manifest_id}"
        case NextStep.ADOPT:
            return f"tidemark db adopt {pipeline_name} --why TEXT"
        case NextStep.FILL:
            return f"tidemark fill {pipeline_name} {sink_name} --why TEXT"
        case _:
            assert_never(step)
