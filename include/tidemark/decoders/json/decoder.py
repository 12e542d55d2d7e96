"""Opens the decoder of JSON records."""

from collections.abc import Mapping
from typing import Any

from tidemark.decoders.base import Decoder
from tidemark.decoders.json.json_schema import struct_of
from tidemark.decoders.json.strict import JsonDecoder
from tidemark.decoders.json.tombstones import TombstoneDecoder


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """A decoder for ``schema``, and for ``tombstones`` if they are named; ``ConfigurationError`` for a wrong schema."""
    values = JsonDecoder(struct_of(config.get("schema")), config.get("max_list_bytes"))
    return TombstoneDecoder(values, config["tombstones"]) if config.get("tombstones") else values
