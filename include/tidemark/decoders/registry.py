"""The registry of decoders: the package of each kind, with the modules ``decoder`` (``open_decoder``) and ``settings``.

Executors open decoders here, so this imports the standard library and pyarrow, nothing else.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from tidemark.decoders.base import Decoder
from tidemark.errors import ConfigurationError

DECODERS: Final[dict[str, str]] = {
    "json": "tidemark.decoders.json",
    "raw": "tidemark.decoders.raw",
}


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """The decoder for ``decode`` of an order.

    Raises ``ConfigurationError`` when its format is not registered, or its options are wrong.
    """
    kind = config.get("format", "")
    if kind not in DECODERS:
        raise ConfigurationError(f"decode.format is {kind!r}", next_step=f"write one of {', '.join(DECODERS)}")
    decoder: Decoder = import_module(f"{DECODERS[kind]}.decoder").open_decoder(config)
    return decoder
