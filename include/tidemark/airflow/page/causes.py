"""Problems as the page shows them: the cause, then the place, then the commands. No I/O."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from tidemark.lifecycle.older import NEXT, described
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.operations.status import PipelineProblem

GROUPS = frozenset({"accept", "rename", "retire", "db", "monitor", "spark", "print"})  # of commands
FLAGS = frozenset(
    {
        "--accept-shrunken",
        "--against-history",
        "--airflow",
        "--append-again",
        "--compare",
        "--damaged",
        "--dead-letters",
        "--deep",
        "--drift",
        "--dry-run",
        "--incomplete",
        "--json",
        "--lag",
        "--replay",
        "--show",
        "--source",
        "--take-over",
        "--undo",
    }
)  # options without a value
PLACEHOLDERS = frozenset({"TEXT", "NAME", "NEW", "OLD"})  # what a command leaves to you
OTHER_SUBJECTS = frozenset({"error", "pipeline", "manifest"})  # told by the page around it
NAMED_RANGES = 3
HEADLINE = 4  # words before a colon, so that they say something without what follows

_CONTEXT = re.compile(r"\s*\[(\w+=[^\n]*)\]$")
_JOINT = re.compile("[:;] ")
_END = ",;:."
_OF_A_RECORD = {"topic", "partition", "offset"}


@dataclass(frozen=True)
class Instruction:
    """``words`` and the command after them. A line may break between the parts of a ``command``, not inside a part."""

    words: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class StatedCause:
    """The sentence ``what``, its ``reasons``, the ``place`` in the source, and the ``steps`` to the solution.

    ``record``: topic, partition and offset of the record that caused it, if there is one.
    """

    what: str
    reasons: tuple[str, ...] = ()
    place: str = ""
    steps: tuple[Instruction, ...] = ()
    manifest_id: int | None = None
    record: tuple[str, str, str] | None = None


def cause_of_text(text: str, next_step: str = "", names: Collection[str] = ()) -> StatedCause:
    """Return the cause from the text of an error; ``names`` are names of pipelines."""
    first, *others = text.splitlines() or [""]
    context = _CONTEXT.search(first)
    facts = dict(part.partition("=")[::2] for part in re.split(r" (?=\w+=)", context[1])) if context else {}
    first = first[: context.start()] if context else first
    what, *reasons = _head_and_reasons(first)
    reasons += [line for line in others if line.strip() and not line.startswith(NEXT)]
    record = (facts["topic"], facts["partition"], facts["offset"]) if facts.keys() >= _OF_A_RECORD else None
    place = _place(facts)
    reasons += [f"{name} {value}" for name, value in facts.items() if name not in OTHER_SUBJECTS]
    return StatedCause(what, tuple(reasons), place, steps_of(next_step, names), record=record)


def _head_and_reasons(sentence: str) -> list[str]:
    """Return the head of a sentence, which says something by itself, and the parts after it: those of a parenthesis at
    the end, after a semicolon, or after a colon.
    """
    head, _, inner = sentence.partition(" (")
    if _JOINT.search(inner) and not _JOINT.search(head) and inner.endswith(")"):
        return [head, *inner.removesuffix(")").split("; ")]
    joint = _JOINT.search(sentence)
    if joint is None or len(sentence[: joint.start()].split()) < HEADLINE:
        return [sentence]
    return [sentence[: joint.start()], *sentence[joint.end() :].split("; ")]


def _place(facts: dict[str, str]) -> str:
    """Take the place out of the facts and return it; empty without a topic, since a partition alone says nothing."""
    if "topic" not in facts:
        return ""
    place = facts.pop("topic")
    if "partition" in facts:
        place = f"{place}-{facts.pop('partition')}"
    for name in ("offset", "offsets"):
        if name in facts:
            place = f"{place} {name} {facts.pop(name)}"
    return place


def cause_of_problem(problem: PipelineProblem, manifest: Manifest | None, names: Collection[str]) -> StatedCause:
    """Return the cause of a problem of ``status``. For a problem of a manifest, use the manifest's own reason, which
    has a place. Where and when the problem was seen is the last reason.
    """
    if manifest is not None and problem.what == described(manifest):
        return cause_of_reason(manifest, problem.next_step, names)
    cause = cause_of_text(problem.headline or problem.what, problem.next_step, names)
    seen = problem.what.removesuffix(problem.headline).rstrip(": ") if problem.headline else ""
    reasons = (*cause.reasons, seen) if seen else cause.reasons
    return replace(cause, reasons=reasons, manifest_id=manifest.id if manifest else None)


def cause_of_reason(manifest: Manifest, next_step: str | None = None, names: Collection[str] = ()) -> StatedCause:
    """Return why a manifest is not finished. Without ``next_step``, use the next step of the manifest's reason."""
    if next_step is None:
        lines = (manifest.reason or "").splitlines()
        next_step = "; ".join(line.removeprefix(NEXT) for line in lines if line.startswith(NEXT))
    names = {*names, manifest.pipeline_name}
    cause = cause_of_text(manifest.reason or _without_reason(manifest), next_step, names)
    more = len(manifest.ranges) - NAMED_RANGES
    ranges = ", ".join(map(str, manifest.ranges[:NAMED_RANGES]))
    place = cause.place or f"{ranges} and {more} more ranges" if more > 0 else cause.place or ranges
    return replace(cause, place=place, manifest_id=manifest.id)


def _without_reason(manifest: Manifest) -> str:
    match manifest.state:
        case ManifestState.RUNNING:
            return manifest.death
        case ManifestState.DONE:
            return "a replay has reached only some sinks"
    return "no attempt has been started" if not manifest.attempt else f"attempt {manifest.attempt} is not finished"


def steps_of(text: str, names: Collection[str] = ()) -> tuple[Instruction, ...]:
    """Return the commands of a next step, each with the words before it. Words after the last command are a step of
    their own.
    """
    tokens, steps, words = text.replace("`", "").split(), list[Instruction](), list[str]()
    at = 0
    while at < len(tokens):
        length = _length(tokens[at:], names) if tokens[at] == "tidemark" else 0
        if not length:
            words.append(tokens[at])
            at += 1
            continue
        command = tokens[at : at + length]
        steps.append(Instruction(_prose(words), _parts([*command[:-1], command[-1].rstrip(_END)])))
        words, at = [], at + length
    rest = _prose(words)
    return (*steps, Instruction(rest)) if rest else tuple(steps)


def _prose(words: list[str]) -> str:
    return " ".join(words).strip(f"{_END} ")


def _length(tokens: list[str], names: Collection[str]) -> int:
    """Count the tokens of the command that begins here; 0 if none does. Words of the sentence may follow it."""
    length = 3 if tokens[1:2] and tokens[1] in GROUPS else 2
    if len(tokens) < length:
        return 0
    while length < len(tokens) and tokens[length - 1][-1] not in _END and _belongs(tokens, length, names):
        length += 1
    return length


def _belongs(tokens: list[str], at: int, names: Collection[str]) -> bool:
    before, token = tokens[at - 1], tokens[at].rstrip(_END)
    if before.startswith("--") and before not in FLAGS:
        return True
    if token.startswith("--") or token in names or token.isupper() or token.isdigit():
        return True
    # A name, such as that of a sink: an option comes soon after it.
    soon = tokens[at : at + 3]
    ends = next((number for number, part in enumerate(soon) if part[-1] in _END), len(soon))
    return any(part.startswith("--") for part in soon[1 : ends + 1])


def _parts(command: list[str]) -> tuple[str, ...]:
    parts = [""]
    for token in command:
        if token.startswith("--"):
            parts.append(token)
        else:
            parts[-1] = f"{parts[-1]} {token}".lstrip()
    return tuple(parts)
