"""Declares the kinds of this provider: Iceberg tables."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "iceberg",
    libraries=("pyiceberg", "pyiceberg_core", "requests", "sqlalchemy"),
    install='pip install "tidemark[iceberg]"',
    needs=("lake_tables", "tables"),
    sinks={"iceberg": "tidemark.providers.iceberg"},
)
