"""Compares a changed pipeline file with what its runs have published: ``validate --against-history``."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.known_sinks import is_not_filled, not_in_file
from tidemark.lifecycle.renamed import looks_renamed_from
from tidemark.model.manifest import listed
from tidemark.operations.change import Change
from tidemark.pipeline.folders import stream_folders
from tidemark.pipeline.schedule import Schedule
from tidemark.pipeline.settings import Pipeline


def against_history(pipeline: Pipeline, database: ManifestDatabase, names: Collection[str]) -> list[Change]:
    """Return the differences since the pipeline was last planned; ``names`` are the pipelines that have a file.

    The caller has checked that the sinks of the pipeline are known to the database, or new:
    ``known_sinks.refuse_unlike``.
    """
    if not database.pipelines.is_planned(pipeline.name):
        return _never_planned(pipeline, database, names)
    return [
        *_topics(pipeline, database),
        *_sinks(pipeline, database),
        *_rows(pipeline, database),
        *changes_of_schedule(pipeline, database.runs.scheduled_cuts(pipeline.name)),
    ]


def forgotten(database: ManifestDatabase, names: Collection[str]) -> list[str]:
    """Return a line for each pipeline that was planned and no longer has a file."""
    return [
        f"pipeline {name} was planned and has no file: nothing plans or retries it any more; what it published stays. "
        f"Take it off the lists: tidemark retire pipeline {name} --why TEXT; or, when its file has another name now: "
        f"tidemark rename pipeline {name} NEW --why TEXT"
        for name in database.pipelines.names()
        if name not in names
    ]


def _never_planned(pipeline: Pipeline, database: ManifestDatabase, names: Collection[str]) -> list[Change]:
    """Return the change for a pipeline that was never planned. A renamed file looks the same: manifests, files and rows
    belong to a pipeline by its name.
    """
    targets = {sink.target for sink in pipeline.sinks}
    alike = looks_renamed_from(pipeline, database)
    for name in database.pipelines.names(retired=True):
        shared = sorted(targets & {sink.target for sink in database.sinks.known(name) if sink.is_current})
        if name == alike or (name not in names and shared):
            undo = (
                f"tidemark retire pipeline {name} --undo --why TEXT, then: "
                if database.pipelines.retired_at(name)
                else ""
            )
            gone = ", which has no file any more" if name not in names else ""
            return [
                Change(
                    f"pipeline {pipeline.name} was never planned, and {shared[0]} has output of pipeline {name}{gone}: "
                    "under the new name every record that the topics still have is written once more, beside what is "
                    "there, or the plan is refused",
                    f"if it was renamed: {undo}tidemark rename pipeline {name} {pipeline.name} --why TEXT; if it is "
                    "another one, give its sinks other names and targets",
                )
            ]
    return [Change("it was never planned: the first run starts where source.starting_offsets says")]


def _topics(pipeline: Pipeline, database: ManifestDatabase) -> list[Change]:
    planned = {chain.at.topic for chain in database.chains.of_pipeline(pipeline.name)}
    new = sorted({*pipeline.source.topics} - planned)
    unread = sorted(topic for topic in planned if not pipeline.source.reads(topic))
    changes = []
    if new:
        changes.append(
            Change(
                f"topics {listed(new)} are new: the next run reads them from their first record on, whatever "
                "starting_offsets says"
            )
        )
    if unread:
        changes.append(
            Change(
                f"topics {listed(unread)} are not read any more: what is published of them stays, and what arrives "
                "from now on is not read",
                "put them back before retention takes what you want; the next run then goes on where the last ended",
            )
        )
    return changes


def _sinks(pipeline: Pipeline, database: ManifestDatabase) -> list[Change]:
    known = {sink.name for sink in database.sinks.known(pipeline.name)}
    changes = []
    for sink in pipeline.sinks:
        lacking = database.publications.lacking(pipeline.name, sink.name)
        if sink.name not in known and not lacking:
            changes.append(Change(f"sink {sink.name} is new: it gets what is published from the next run on"))
        elif lacking:
            changes.append(Change(*is_not_filled(pipeline.name, sink.name, lacking)))
    return changes + [Change(*line.split("; ", 1)) for line in not_in_file(pipeline, database)]


def _rows(pipeline: Pipeline, database: ManifestDatabase) -> list[Change]:
    """Return a change if the settings that decide rows and places differ from those of done manifests, which keep their
    output until they are replayed.

    Says nothing of a manifest that a sink outside the file has too: the fingerprint of its attempt includes the
    settings of that sink.
    """
    names = [sink.name for sink in pipeline.sinks]
    unlike = database.publications.made_otherwise(pipeline.name, names, pipeline.earlier_fingerprints())
    changes = []
    if unlike:
        changes.append(
            Change(
                f"the settings that decide rows and places are others than those of {len(unlike):,} done manifests "
                f"({listed(unlike)}): these stay as they are, and the next run makes its rows by the new settings",
                "to bring them in line, while the source has their records: "
                f"tidemark replay {pipeline.name} --manifest {unlike[0]}",
            )
        )
    return changes + _folders(pipeline, database)


def _folders(pipeline: Pipeline, database: ManifestDatabase) -> list[Change]:
    """Return a change for each changed layout: readers that list folders must list the old and the new ones."""
    topics = database.chains.topics(pipeline.name)
    own = {(stream.sink, stream.topic): stream.folders for stream in stream_folders(pipeline, topics)}
    known: dict[tuple[str, str], list[str]] = {}
    for row in database.sinks.folders(topics):
        if row["pipeline"] == pipeline.name:
            known.setdefault((row["sink"], row["topic"]), []).append(row["folders"])
    return [
        Change(
            f"sink {sink} will write topic {topic} into {own[sink, topic]}; what is published stays in "
            f"{listed(folders)}, and readers that list folders must list both",
            "replay what is to move: a replay removes what it replaces",
        )
        for (sink, topic), folders in known.items()
        if (sink, topic) in own and own[sink, topic] not in folders
    ]


def changes_of_schedule(pipeline: Pipeline, cuts: Sequence[datetime]) -> list[Change]:
    """Return a change if the schedule was removed, or is not that of the newest runs; ``cuts`` are theirs, newest
    first.

    Return none for a pipeline with a DAG of its own, where the arguments of the DAG decide, nor for one with a trigger
    alone.
    """
    has_trigger_alone = pipeline.schedule is None and pipeline.trigger is not None
    if pipeline.airflow.own_dag or has_trigger_alone or not cuts:
        return []
    newest = f"those of {_at(cuts[1])} and {_at(cuts[0])}" if len(cuts) > 1 else f"that of {_at(cuts[0])}"
    if pipeline.schedule is None:
        return [
            Change(
                f"it has no schedule any more: the scheduled run of {_at(cuts[0])} was the last one; new records are "
                "read only when you start a run",
                f"trigger the DAG, or: tidemark run {pipeline.name}; with the schedule back in the file, the next run "
                "reads on where the last ended, while the source has the records",
            )
        ]
    if not _is_of_another(Schedule(pipeline.schedule), cuts):
        return []
    return [
        Change(
            f'schedule is "{pipeline.schedule}", and the newest scheduled runs, {newest}, were by another one, or runs '
            "were left out: the next one reads on where the last one ended, nothing is left out, nothing is read "
            "twice, and runs that are planned keep their ranges",
            "what depends on the time between two runs must fit the new one: max_age, airflow.deadline, "
            "slice.max_slices, and DAGs that wait for clock times",
        )
    ]


def _is_of_another(schedule: Schedule, cuts: Sequence[datetime]) -> bool:
    """Return whether the newest runs are at times that this schedule does not have, or are all further apart than it
    says.

    A pause or a long run puts runs further apart too, so one pair of neighbours that fits is enough for False.
    """
    if not all(schedule.has(cut) for cut in cuts[:2]):
        return True
    return len(cuts) > 2 and not any(schedule.after(earlier) == later for later, earlier in pairwise(cuts))


def _at(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
