"""Times that users and programs name."""

from datetime import UTC, datetime


def with_zone(moment: datetime) -> datetime:
    """Return the moment; one without a zone counts as UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """Return the moment in UTC; raises ``ValueError`` if it is in UTC before the year 1 or after 9999."""
    try:
        return with_zone(moment).astimezone(UTC)
    except OverflowError:
        raise ValueError("it is in UTC before the year 1 or after the year 9999") from None
