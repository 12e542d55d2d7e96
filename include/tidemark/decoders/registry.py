"""Opens decoders. Executors open them here, so this imports only the standard library and pyarrow."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.decoders.base import Decoder
from tidemark.kinds import DECODERS


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """Open the decoder for ``decode`` of an order.

    Raises ``ConfigurationError`` if its format is not registered, or its options are wrong.
    """
    if "by_topic" in config:
        return _open_by_topic(config["by_topic"])
    key, headers = config.get("key"), config.get("headers", False)
    if key is None and not headers:
        return open_values(config)
    from tidemark.decoders.records import RecordDecoder

    if key is None:
        return RecordDecoder(open_values(config), None, headers=headers)
    # With a decoder of keys RecordDecoder makes the row of a deletion, so the decoder of values must not make one.
    values = open_values({name: option for name, option in config.items() if name != "tombstones"})
    return RecordDecoder(values, open_values(key), headers=headers, tombstones=config.get("tombstones", ()))


def _open_by_topic(entries: Sequence[Mapping[str, Any]]) -> Decoder:
    from tidemark.decoders.by_topic.decoder_by_topic import DecoderByTopic
    from tidemark.decoders.by_topic.topic_filter import TopicFilter

    opened = [(TopicFilter.of_order(entry), open_decoder(entry["decode"])) for entry in entries]
    return DecoderByTopic(opened, tombstones=bool(tombstone_fields({"by_topic": entries})))


def tombstone_fields(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields that the row of every tombstone has; empty if the decoder of an order knows no tombstones."""
    if "by_topic" not in config:
        return tuple(config.get("tombstones") or ())
    named = [fields for entry in config["by_topic"] if (fields := tombstone_fields(entry["decode"]))]
    return tuple(field for field in named[0] if all(field in fields for fields in named)) if named else ()


def open_values(config: Mapping[str, Any]) -> Decoder:
    """Open a decoder of values, or of keys, alone; raises as ``open_decoder``."""
    decoder: Decoder = DECODERS.module(config.get("format", ""), "decoder").open_decoder(config)
    return decoder
