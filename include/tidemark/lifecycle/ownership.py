"""Checks who owns a target: two manifest databases in one target would give their manifests the same ids."""

from tidemark.errors import ForeignLake
from tidemark.sinks.base import Owner, Sink


def claim(sink: Sink, database_id: str) -> None:
    """Register the database as owner of target and staging, or raise ``ForeignLake``; may be repeated."""
    sink.ledger.claim(database_id)
    refuse_foreign(sink, database_id)
    sink.staging.claim(database_id)
    sink.output.note_settings()


def refuse_foreign(sink: Sink, database_id: str) -> None:
    """Raise ``ForeignLake`` unless the database owns the target, and no other database owns the place for staging."""
    sink.ledger.refuse_foreign(database_id)
    sink.staging.refuse_foreign(database_id)


def belongs_to(sink: Sink, database_id: str) -> bool:
    """Return whether this sink may list and remove leftovers of attempts in its target: the database owns the target,
    and no sink writes to it under another name."""
    try:
        refuse_foreign(sink, database_id)
    except ForeignLake:
        return False
    registered = sink.ledger.registered_targets()
    return not registered or sink.target in registered


def hand_over(sink: Sink, owner: Owner) -> None:
    """Make another database the owner of staging and target, as a decision says."""
    sink.staging.hand_over(owner)
    sink.ledger.hand_over(owner)


def take_over(sink: Sink, pipeline_name: str, sink_name: str) -> None:
    """Rename what target and staging hold under a former name of the sink, or of its pipeline, to the present name. May
    be repeated after it was killed at any point."""
    owner = sink.ledger.owner()
    if owner is not None:
        sink.staging.rename(pipeline_name, sink_name, owner)
    if pipeline_name != sink.pipeline_name:
        sink.ledger.rename_pipeline(pipeline_name)
    else:
        sink.ledger.rename(sink_name)
