"""Opens the decoder of JSON records."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tidemark.decoders.base import Decoder
from tidemark.decoders.envelopes.base import open_envelope, open_json
from tidemark.decoders.envelopes.enveloped import EnvelopeDecoder
from tidemark.decoders.json.json_schema import struct_of
from tidemark.decoders.json.marks import WRAPPER, MarkedDecoder, has_marks, payload_of
from tidemark.decoders.json.on_unknown import on_unknown
from tidemark.decoders.json.plain import PlainReader
from tidemark.decoders.json.strict import JsonDecoder
from tidemark.decoders.json.tombstones import TombstoneDecoder


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """Open a decoder for ``schema``, and for ``envelope`` and ``tombstones`` if the order has them.

    Raises ``ConfigurationError`` for a wrong schema.
    """
    row, limit = struct_of(config.get("schema")), config.get("max_list_bytes")
    unknown = on_unknown(config)
    tombstones: Sequence[str] = config.get("tombstones", ())
    opened = payload_of if tombstones and not row.names & WRAPPER else None
    values: Decoder = JsonDecoder(row, limit, unknown, opened, PlainReader.of(row))
    keys = JsonDecoder(row, opened=opened)
    has_envelope = "envelope" in config
    if has_marks(row) and not has_envelope:
        values = MarkedDecoder(values, deletes=bool(tombstones))
    if has_envelope:
        json = open_json(config["envelope"], row, tombstones)
        read = JsonDecoder(json.struct, limit, unknown, json.opened, json.reader)
        values = EnvelopeDecoder(read, open_envelope(config["envelope"], lambda _: json.row))
        single = tombstones[0] if len(tombstones) == 1 else None
        keys = JsonDecoder(json.key, opened=partial(json.opened_key, single=single))
    return TombstoneDecoder(values, keys, tombstones, needs_keys=has_envelope) if tombstones else values
