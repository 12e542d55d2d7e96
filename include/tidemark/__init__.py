"""Tidemark copies Kafka topics into lakes in recorded micro-batches, exactly once."""

__version__ = "0.1.0"
