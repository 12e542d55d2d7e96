"""Makes rows of ``type`` and ``data``, whatever the format."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, Decoded

OF_ROWS = pa.array(["insert", "update", "bootstrap-insert"])
OF_NO_ROW = pa.array(["bootstrap-start", "bootstrap-complete"])


class ToyEnvelope:
    row_name = "data"
    unread = "old"

    def __init__(self, row: pa.Schema) -> None:
        self.schema = row.remove_metadata()

    def is_other_record(self, name: str) -> bool:
        return name == "Bootstrap"

    def unwrap(self, records: pa.RecordBatch) -> Decoded:
        kind = pc.fill_null(records.column("type"), "")
        is_row = pc.and_(pc.is_in(kind, OF_ROWS), pc.is_valid(records.column("data")))
        deletion, filtered = pc.equal(kind, "delete"), pc.is_in(kind, OF_NO_ROW)
        bad = pc.indices_nonzero(pc.invert(pc.or_(pc.or_(is_row, deletion), filtered))).to_pylist()
        return Decoded(
            pa.RecordBatch.from_arrays(records.filter(is_row).column("data").flatten(), schema=self.schema),
            _at(is_row),
            deletions=_at(deletion),
            filtered=_at(filtered),
            errors=tuple(BadRecord(at, f"type {kind[at].as_py()!r} has no row") for at in bad),
        )


def _at(mask: pa.Array) -> pa.Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def open_envelope(config: Mapping[str, Any], columns_of: Callable[[str], pa.Schema]) -> ToyEnvelope:
    del config
    return ToyEnvelope(columns_of(ToyEnvelope.row_name))
