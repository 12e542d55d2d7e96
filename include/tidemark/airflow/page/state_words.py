"""One word for a manifest, from the words that ``status`` has for a pipeline."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.operations.status import State, Status, unresolved_audits

# Of the states that a list or a drawing counts; an abandoned manifest is one whose process is dead.
WORDS = {
    "planned": State.WAITING,
    "running": State.WORKING,
    "abandoned": State.FAILED,
    "failed": State.FAILED,
    "blocked": State.BLOCKED,
    "done": State.OK,
}


def word(state: str) -> str:
    """Translate a state of the database; other words stay as they are."""
    return WORDS[state].value if state in WORDS else state


@dataclass(frozen=True)
class ManifestWord:
    """The state of a manifest; if Airflow tries it again, ``until`` is the latest time."""

    state: State
    until: datetime | None = None


@dataclass(frozen=True)
class ManifestWords:
    """Findings about the manifests of a pipeline, beside their states.

    ``damage`` has, by manifest, the first difference that an audit has found, and its next step. ``unnamed``: an audit
    found more differences than it kept, so any done manifest may be one of them.
    """

    problems: dict[int, State]
    retries: dict[int, datetime]
    damage: dict[int, tuple[str, str]]
    unnamed: bool

    @classmethod
    def of_pipeline(cls, database: ManifestDatabase, status: Status) -> Self:
        problems: dict[int, State] = {}
        for problem in status.problems:  # the worst first
            if problem.manifest_id is not None:
                problems.setdefault(problem.manifest_id, problem.kind)
        audits = unresolved_audits(status.audits)
        damage: dict[int, tuple[str, str]] = {}
        for audit in audits:
            for difference in audit.first_differences:
                if difference.manifest_id is not None and not (difference.unseen or difference.harmless):
                    damage.setdefault(difference.manifest_id, (difference.what, difference.next_step))
        for row in database.audits.missing(status.pipeline_name):
            damage.setdefault(row["manifest_id"], (row["what"], row["next_step"]))
        return cls(
            problems,
            {retry.manifest_id: retry.at for retry in status.retries if retry.manifest_id is not None},
            damage,
            any(audit.differences > len(audit.first_differences) for audit in audits),
        )

    def of(self, manifest: Manifest) -> ManifestWord:
        """Return the word for a manifest: never ok while something is wrong or could not be looked at."""
        if manifest.alive:
            return self.of_state(manifest.id, "running")
        return self.of_state(manifest.id, "abandoned" if manifest.state is ManifestState.RUNNING else manifest.state)

    def of_state(self, manifest_id: int, state: str) -> ManifestWord:
        """Return the word for a manifest in one of the states of ``WORDS``."""
        if manifest_id in self.problems:
            return ManifestWord(self.problems[manifest_id])
        if manifest_id in self.retries:
            return ManifestWord(State.RETRYING, self.retries[manifest_id])
        return ManifestWord(self.of_output([manifest_id]) if state == "done" else WORDS[state])

    def of_output(self, manifest_ids: Collection[int]) -> State:
        """Return damaged, unknown or ok for what these manifests have published."""
        if any(manifest_id in self.damage for manifest_id in manifest_ids):
            return State.DAMAGED
        return State.UNKNOWN if self.unnamed and manifest_ids else State.OK
