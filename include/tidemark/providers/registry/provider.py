"""Declares the kinds of this provider: schemas of a registry, and JSON records that name their schema."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "registry",
    decoders={"json_schema": "tidemark.providers.registry.json_schema"},
)
