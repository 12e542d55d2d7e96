"""The headers of every message that Tidemark sends, and what they say about its source."""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.model.partitions import Record
from tidemark.model.receipt import MALFORMED
from tidemark.sinks.dead_letters import DeadLetter

TOPIC, PARTITION, OFFSET = "tidemark.topic", "tidemark.partition", "tidemark.offset"  # of the source
MANIFEST = "tidemark.manifest"
ROW = "tidemark.row"  # of messages of a record that has several
ATTEMPT = "tidemark.attempt"  # of messages that a person had appended again: the highest of a manifest counts
REASON = "tidemark.reason"  # of dead letters: JSON


@dataclass(frozen=True)
class From:
    """The place from which a message came."""

    manifest_id: int
    topic: str
    partition: int
    offset: int
    row: int | None
    attempt: int  # 0 unless it was appended again


def source_of(message: Record) -> From | None:
    """Return the source of a message; None for a message without Tidemark's headers, which somebody else has sent."""
    headers = dict(message.headers or ())
    try:
        topic = _bytes(headers[TOPIC]).decode()
        row = int(_bytes(headers[ROW])) if ROW in headers else None
        attempt = int(_bytes(headers[ATTEMPT])) if ATTEMPT in headers else 0
        manifest_id, partition, offset = (int(_bytes(headers[name])) for name in (MANIFEST, PARTITION, OFFSET))
        return From(manifest_id, topic, partition, offset, row, attempt)
    except MALFORMED:
        return None


def reason_of(message: Record) -> bytes | None:
    return dict(message.headers or ()).get(REASON)


def dead_letter_of(message: Record, place: From, *, values: bool) -> DeadLetter:
    """Return a dead letter as it was when it was sent; without ``values`` key, value and headers are left out."""
    about: Mapping[str, Any] = json.loads(reason_of(message) or b"{}")
    when, pairs = about.get("timestamp"), about.get("headers")
    headers = None if pairs is None else tuple((key, None if text is None else b64decode(text)) for key, text in pairs)
    return DeadLetter(
        topic=place.topic, partition=place.partition, offset=place.offset,
        timestamp=None if when is None else datetime.fromisoformat(when),
        error_class=about.get("error_class", ""), reason=about.get("reason", ""), schemas=about.get("schemas"),
        key=message.key if values else None, value=message.value if values else None,
        headers=headers if values else None,
    )  # fmt: skip


def _bytes(value: bytes | None) -> bytes:
    if value is None:
        raise ValueError("a header without a value")
    return value
