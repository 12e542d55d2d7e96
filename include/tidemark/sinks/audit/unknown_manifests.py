"""Finds what is in a target of manifests that no pipeline of the database has."""

from collections.abc import Collection, Iterator, Mapping

from tidemark.database.client import ManifestDatabase
from tidemark.sinks.base import Sink
from tidemark.sinks.difference import Difference


def unknown_manifests(
    database: ManifestDatabase, sink: Sink, present: Mapping[str, Collection[int]], evidence: Collection[int]
) -> Iterator[Difference]:
    """``present`` are the ids by what the target has of them; those with ``evidence`` can be adopted."""
    for unknown in sorted(database.unknown_manifests(sorted(set().union(*present.values())))):
        kinds = " and ".join(kind for kind, manifest_ids in present.items() if unknown in manifest_ids)
        next_step = "no attempt of Tidemark has left them there: delete those rows by hand"
        if unknown in evidence:
            next_step = f"tidemark db adopt {sink.pipeline_name} --why TEXT"
        yield Difference(
            None, f"{sink.target} has {kinds} of manifest {unknown}, which this database does not know", next_step
        )
