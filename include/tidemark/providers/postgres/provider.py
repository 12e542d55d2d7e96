"""Names what this provider brings: PostgreSQL tables and totals. A plain install has its library."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "postgres",
    sinks={"postgres": "tidemark.providers.postgres", "totals": "tidemark.providers.postgres.totals"},
)
