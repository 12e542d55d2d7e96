"""Measures what one task has staged: counts, digests and offsets by partition of the source."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.digest import Digest
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.staging.grouping import digest_of
from tidemark.sinks.writer import StagedPart


class Measures:
    """The measures of what one task has staged, by partition. All of it is in the one place that ``staged`` names."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, int], list[Any]] = {}

    def add(self, topic: str, partition: int, piece: pa.Table, size: int) -> None:
        """Add rows of one partition, which have the columns of ``HASH_COLUMNS`` too; ``size`` is in bytes."""
        offsets = pc.min_max(piece.column("_offset")).as_py()
        measured = piece.num_rows, size, digest_of(piece), offsets["min"], offsets["max"]
        self._pieces.setdefault((topic, partition), []).append(measured)

    def parts(self, sink: str, kind: ObjectKind, folder: str, staged: str) -> list[StagedPart]:
        parts = []
        for (topic, partition), pieces in self._pieces.items():
            rows, sizes, digests, lowest, highest = zip(*pieces, strict=True)
            part = StagedPart(
                sink=sink, kind=kind, staged=staged, folder=folder, format=None, topic=topic,
                spans=((partition, min(lowest), max(highest)),), rows=sum(rows), bytes=sum(sizes),
                digest=str(sum(digests, Digest.zero())),
            )  # fmt: skip
            parts.append(part)
        return parts
