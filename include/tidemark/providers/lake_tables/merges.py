"""What became of the rows of an attempt that were merged into a table with a key, and how tables keep such numbers."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class CountedMerge:
    """Of the rows of an attempt, ``superseded`` ones had a newer row of their key in the manifest, and ``stale`` ones
    in the table. ``left`` are rows of earlier attempts that this one did not make, and that stay."""

    superseded: int = 0
    stale: int = 0
    left: int = 0

    def about(self) -> dict[str, str]:
        """What the commit says of it."""
        return {f"tidemark.{name}": str(count) for name, count in vars(self).items()}


def steps_of(ids: Sequence[int]) -> list[int]:
    """Ascending ids as steps, which are mostly 1: so a manifest takes less than a byte when it is compressed."""
    return [after - before for before, after in pairwise([0, *ids])]


def packed(content: Any) -> str:
    """Values of JSON as a short text."""
    return b64encode(zlib.compress(json.dumps(content).encode())).decode()


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(b64decode(text)))
