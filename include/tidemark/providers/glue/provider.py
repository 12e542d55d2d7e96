"""Declares the schema registry of this provider: that of AWS Glue."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider("glue", needs=("registry",), registries={"glue": "tidemark.providers.glue"})
