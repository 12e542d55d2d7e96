"""Declares the kinds of this provider: Kafka topics as a target."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "topic",
    libraries=("fastavro", "google.protobuf", "ptars", "pyruhvro"),
    install='pip install "tidemark[topic]"',
    needs=("protobuf", "registry"),
    sinks={"topic": "tidemark.providers.topic"},
)
