"""Damage that audits, plans and adopts have found in published output: of manifests, and so of event hours."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tidemark.database.client import ManifestDatabase
from tidemark.model.problem import Problem
from tidemark.operations.status import LastAudit, State, last_audits, unresolved_audits


@dataclass(frozen=True)
class Damage:
    """The first thing that is wrong with the output of each damaged manifest, by its id.

    ``unnamed``: an audit found more differences than it kept, so any done manifest may be one of them.
    """

    of_manifest: Mapping[int, Problem]
    unnamed: bool = False

    @classmethod
    def of_pipeline(
        cls, database: ManifestDatabase, pipeline_name: str, audits: Sequence[LastAudit] | None = None
    ) -> Self:
        """Return the damage of a pipeline; ``audits`` are its last ones, if the caller knows them."""
        unresolved = unresolved_audits(last_audits(database, pipeline_name) if audits is None else audits)
        known: dict[int, Problem] = {}
        for audit in unresolved:
            for difference in audit.first_differences:
                if difference.manifest_id is not None and not (difference.unseen or difference.harmless):
                    known.setdefault(difference.manifest_id, difference)
        for row in database.audits.missing(pipeline_name):
            known.setdefault(row["manifest_id"], Problem(row["manifest_id"], row["what"], row["next_step"]))
        return cls(known, any(audit.differences > len(audit.first_differences) for audit in unresolved))

    def output(self, manifest_ids: Collection[int]) -> State:
        """Return damaged, unknown or ok for what these manifests have published."""
        if any(manifest_id in self.of_manifest for manifest_id in manifest_ids):
            return State.DAMAGED
        return State.UNKNOWN if self.unnamed and manifest_ids else State.OK

    def mended_by(self, command: str) -> list[int]:
        """Return the damaged manifests whose next step is this command."""
        return sorted(each for each, problem in self.of_manifest.items() if problem.names(command))

    def problems(self, manifest_ids: Collection[int]) -> tuple[Problem, ...]:
        return tuple(self.of_manifest[each] for each in manifest_ids if each in self.of_manifest)
