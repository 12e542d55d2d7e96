"""Declares the kinds of this provider: PostgreSQL tables and totals. A plain install has their library."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "postgres",
    needs=("tables",),
    sinks={"postgres": "tidemark.providers.postgres", "totals": "tidemark.providers.postgres.totals"},
)
