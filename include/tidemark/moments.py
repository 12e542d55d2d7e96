"""Moments that people and programs name."""

from datetime import UTC, datetime


def with_zone(moment: datetime) -> datetime:
    """The moment, in UTC when it has no zone."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
