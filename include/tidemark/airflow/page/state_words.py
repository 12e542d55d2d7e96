"""One word for a manifest, from the words that ``status`` has for a pipeline."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.operations.known_damage import Damage
from tidemark.operations.status import State, Status

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
    """Findings about the manifests of a pipeline, beside their states; ``damage`` is that of published output."""

    problems: dict[int, State]
    retries: dict[int, datetime]
    damage: Damage

    @classmethod
    def of_pipeline(cls, database: ManifestDatabase, status: Status) -> Self:
        problems: dict[int, State] = {}
        for problem in status.problems:  # the worst first
            if problem.manifest_id is not None:
                problems.setdefault(problem.manifest_id, problem.kind)
        return cls(
            problems,
            {retry.manifest_id: retry.at for retry in status.retries if retry.manifest_id is not None},
            Damage.of_pipeline(database, status.pipeline_name, status.audits),
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
        return ManifestWord(self.damage.output([manifest_id]) if state == "done" else WORDS[state])
