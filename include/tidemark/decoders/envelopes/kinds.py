"""The registry of envelopes: the package of each, with the modules ``envelope``, ``json`` and ``settings``."""

from typing import Final

ENVELOPES: Final[dict[str, str]] = {"debezium": "tidemark.decoders.envelopes.debezium"}
