"""Declares the store of this provider: containers of Azure's Blob storage."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "azure",
    libraries=("azure.storage.blob",),
    install='pip install "tidemark[azure]"',
    stores={"abfss": "tidemark.providers.azure"},
)
