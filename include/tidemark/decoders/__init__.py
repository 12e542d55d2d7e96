"""How records become columns: one file per kind, and the registry."""

from collections.abc import Mapping
from typing import Any

from tidemark.decoders.base import Decoded, Decoder, DecoderKind
from tidemark.decoders.json.strict import JsonDecoder
from tidemark.decoders.json.tombstones import TombstoneDecoder
from tidemark.decoders.raw import RawDecoder
from tidemark.errors import ConfigurationError

DECODERS: dict[DecoderKind, type[Decoder]] = {
    DecoderKind.RAW: RawDecoder,
    DecoderKind.JSON: JsonDecoder,
}


def decoder(config: Mapping[str, Any]) -> Decoder:
    """The decoder that a pipeline's ``decode`` asks for; ``ConfigurationError`` when it cannot be made."""
    try:
        kind = DecoderKind(config.get("format", ""))
    except ValueError as error:
        raise ConfigurationError(
            f"decode.format is {config.get('format')!r}", next_step=f"write one of {', '.join(DecoderKind)}"
        ) from error
    made = DECODERS[kind](config)
    if config.get("tombstones") and isinstance(made, JsonDecoder):
        return TombstoneDecoder(made, config["tombstones"])
    return made


__all__ = ["DECODERS", "Decoded", "Decoder", "DecoderKind", "decoder"]
