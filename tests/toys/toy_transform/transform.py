"""``{every: 3, once: name}``: filters offsets that 3 divides, keeps the first row of each ``name``."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.errors import ConfigurationError
from tidemark.transforms.base import Transformed


class ToyTransform:
    """A row that stands for a tombstone is always kept."""

    def __init__(self, every: int, once: str | None) -> None:
        self._every = every
        self._once = once
        self._seen: set[Any] = set()

    def schema(self, given: pa.Schema) -> pa.Schema:
        if self._once is not None and self._once not in given.names:
            raise ConfigurationError(
                f"there is no field {self._once}", next_step=f"use one of {', '.join(given.names)}"
            )
        return given

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        places: dict[str, list[int]] = {"kept": [], "filtered": [], "deduplicated": []}
        for at, row in enumerate(rows.to_pylist()):
            places[self._fate(row)].append(at)
        indices = {fate: pa.array(indices_of, pa.int64()) for fate, indices_of in places.items()}
        data = rows.select([name for name in rows.schema.names if not name.startswith("_")])
        return Transformed(data.take(indices["kept"]), **indices)

    def _fate(self, row: Mapping[str, Any]) -> str:
        if row.get("_is_deleted"):
            return "kept"
        if row["_offset"] % self._every == 0:
            return "filtered"
        if self._once is None:
            return "kept"
        value = row[self._once]
        if value in self._seen:
            return "deduplicated"
        self._seen.add(value)
        return "kept"


def open_transform(options: Mapping[str, Any]) -> ToyTransform:
    return ToyTransform(options["every"], options.get("once"))
