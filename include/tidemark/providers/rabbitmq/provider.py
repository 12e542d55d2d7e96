"""Declares the kinds of this provider: RabbitMQ's streams as a source."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider(
    "rabbitmq",
    sources={"rabbitmq": "tidemark.providers.rabbitmq"},
)
