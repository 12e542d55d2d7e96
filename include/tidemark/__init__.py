"""Tidemark copies Kafka topics into lakes in recorded micro-batches, exactly once."""

from tidemark.version import VERSION

__version__ = VERSION
__all__ = ["__version__"]
