"""Moments that people and programs name."""

from datetime import UTC, datetime


def with_zone(moment: datetime) -> datetime:
    """The moment, in UTC when it has no zone."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC; ``ValueError`` for one that is in UTC before the year 1 or after 9999."""
    try:
        return with_zone(moment).astimezone(UTC)
    except OverflowError:
        raise ValueError("it is in UTC before the year 1 or after the year 9999") from None
