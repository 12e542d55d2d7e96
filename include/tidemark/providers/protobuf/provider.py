"""Declares the kinds of this provider: records in Protobuf, and their schemas."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "protobuf",
    libraries=("google.protobuf", "ptars"),
    install='pip install "tidemark[protobuf]"',
    needs=("registry",),
    decoders={"protobuf": "tidemark.providers.protobuf"},
)
