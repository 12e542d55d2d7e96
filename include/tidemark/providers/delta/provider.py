"""Declares the kinds of this provider: Delta tables."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "delta",
    libraries=("deltalake",),
    install='pip install "tidemark[delta]"',
    needs=("lake_tables", "tables"),
    sinks={"delta": "tidemark.providers.delta"},
)
