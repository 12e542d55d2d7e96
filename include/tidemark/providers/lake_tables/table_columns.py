"""The columns of a lake table's rows, with their types before they are stored."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.decoders.registry import tombstone_fields
from tidemark.model.order import TransformOrder
from tidemark.providers.tables.column_names import (
    EVENT_TIME,
    IS_DELETED,
    LOG_GENERATION,
    MANIFEST_ID,
    NUMBER,
    TOPIC_PARTITION,
)
from tidemark.providers.tables.columns import ATTEMPT
from tidemark.times.event_time import INSTANT
from tidemark.transforms.sequence import columns_after

_PLACES = pa.schema(
    [
        ("_topic", pa.string()), (TOPIC_PARTITION, pa.int32()), ("_offset", pa.int64()), ("_timestamp", INSTANT),
        ("_key", pa.binary()), (MANIFEST_ID, pa.int64()),
    ]
)  # fmt: skip
_VERSION = (pa.field(LOG_GENERATION, pa.int32()), pa.field(ATTEMPT, pa.int32()))  # with the place: a row's version


def stored_columns(
    decode: Mapping[str, Any], transforms: Sequence[TransformOrder], *, keyed: bool = False
) -> pa.Schema:
    """Return the columns of rows as a task stages them, with their types before they are stored.

    With ``keyed`` they are those of a table of current rows, which also has the version of each row and
    ``_is_deleted``.
    """
    columns = columns_after(decode, transforms)
    number = [pa.field(NUMBER, pa.int32())] if columns.fans_out else []
    deleted = [pa.field(IS_DELETED, pa.bool_())] if keyed or tombstone_fields(decode) else []
    version = _VERSION if keyed else ()
    return pa.schema([*_PLACES, *number, *deleted, *version, *columns.schema, pa.field(EVENT_TIME, INSTANT)])
