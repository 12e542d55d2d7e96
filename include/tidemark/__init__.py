"""Tidemark copies Kafka topics into lakes in recorded micro-batches, exactly once."""

from tidemark.version import VERSION as __version__

__all__ = ["__version__"]
