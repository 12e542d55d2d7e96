"""Declares the kinds of this provider: records in Avro."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "avro",
    libraries=("fastavro", "pyruhvro"),
    install='pip install "tidemark[avro]"',
    needs=("registry",),
    decoders={"avro": "tidemark.providers.avro"},
)
