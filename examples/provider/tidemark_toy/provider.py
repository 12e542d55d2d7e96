"""Names what this package brings."""

from typing import Final

from tidemark.providers import Provider

PROVIDER: Final = Provider("toy", sinks={"toy": "tidemark_toy"})
