"""The registry of decoders: the package of each kind, with the modules ``decoder`` (``open_decoder``) and ``settings``.

The other folders beside it are shared by kinds, and have neither of these modules: ``by_topic``,
``envelopes``, ``json_shapes``, ``protobuf_schema`` and ``schema_registry``.

Executors open decoders here, so this imports the standard library and pyarrow, nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemark.decoders.base import Decoder
from tidemark.errors import ConfigurationError
from tidemark.extras import module_of_kind

DECODERS: Final[dict[str, str]] = {
    "avro": "tidemark.decoders.avro",
    "json": "tidemark.decoders.json",
    "json_schema": "tidemark.decoders.json.framed",
    "protobuf": "tidemark.decoders.protobuf",
    "raw": "tidemark.decoders.raw",
    "string": "tidemark.decoders.string",
}


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """The decoder for ``decode`` of an order.

    Raises ``ConfigurationError`` when its format is not registered, or its options are wrong.
    """
    if "by_topic" in config:
        return _open_by_topic(config["by_topic"])
    key, headers = config.get("key"), config.get("headers", False)
    if key is None and not headers:
        return open_values(config)
    from tidemark.decoders.records import RecordDecoder

    if key is None:
        return RecordDecoder(open_values(config), None, headers=headers)
    # With a decoder of keys a deletion is a row of the whole record; the decoder of values must not make it one before.
    values = open_values({name: option for name, option in config.items() if name != "tombstones"})
    return RecordDecoder(values, open_values(key), headers=headers, tombstones=config.get("tombstones", ()))


def _open_by_topic(entries: Sequence[Mapping[str, Any]]) -> Decoder:
    from tidemark.decoders.by_topic.decoder_by_topic import DecoderByTopic
    from tidemark.decoders.by_topic.topic_filter import TopicFilter

    opened = [(TopicFilter.of_order(entry), open_decoder(entry["decode"])) for entry in entries]
    return DecoderByTopic(opened, tombstones=bool(tombstone_fields({"by_topic": entries})))


def tombstone_fields(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that the row of every tombstone has; empty when the decoder of an order knows no tombstones."""
    if "by_topic" not in config:
        return tuple(config.get("tombstones") or ())
    named = [fields for entry in config["by_topic"] if (fields := tombstone_fields(entry["decode"]))]
    return tuple(field for field in named[0] if all(field in fields for fields in named)) if named else ()


def open_values(config: Mapping[str, Any]) -> Decoder:
    """The decoder of values, or of keys, alone; raises as ``open_decoder``."""
    kind = config.get("format", "")
    if kind not in DECODERS:
        raise ConfigurationError(f"decode.format is {kind!r}", next_step=f"write one of {', '.join(DECODERS)}")
    decoder: Decoder = module_of_kind(f"{DECODERS[kind]}.decoder", kind).open_decoder(config)
    return decoder
