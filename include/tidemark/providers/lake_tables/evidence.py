"""The evidence of a lake table: which attempt at each manifest is in it.

Each commit writes it anew, and names the file that holds it. So the evidence goes back with the rows if another program
rolls the table back.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from itertools import accumulate, pairwise

from tidemark.model.receipt import MALFORMED


@dataclass(frozen=True)
class CountedMerge:
    """Row counts of one merge.

    ``superseded``: rows of the attempt that lost to a newer row of the same key in the same manifest. ``stale``: rows
    that lost to a newer row in the table. ``left``: rows that an earlier attempt at this manifest put into the table
    and that stay, because this attempt did not make them.
    """

    superseded: int = 0
    stale: int = 0
    left: int = 0

    def about(self) -> dict[str, str]:
        """Return the counts as properties of the commit."""
        return {f"tidemark.{name}": str(count) for name, count in vars(self).items()}


@dataclass(frozen=True)
class TableEvidence:
    """The attempt at each manifest whose rows the table has, in ``attempts``.

    ``number`` is unique for the commit that wrote the evidence. It is 0 if nothing was published, or if nothing shows
    what was. In a table with one row per key ``merges`` has the row counts of each manifest.
    """

    number: int = 0
    attempts: Mapping[int, int] = field(default_factory=dict)
    merges: Mapping[int, CountedMerge] = field(default_factory=dict)

    def with_next(
        self, number: int, manifest_id: int, attempt: int, merge: CountedMerge | None = None
    ) -> "TableEvidence":
        merges = self.merges if merge is None else {**self.merges, manifest_id: merge}
        return TableEvidence(number, {**self.attempts, manifest_id: attempt}, merges)

    def text(self) -> str:
        """Return the evidence as compressed text. Ids are written as steps, which are mostly 1: less than a byte for a
        manifest."""
        ids = sorted(self.attempts)
        steps = [after - before for before, after in pairwise([0, *ids])]
        attempts = [self.attempts[manifest_id] for manifest_id in ids]
        merges = [astuple(self.merges[manifest_id]) for manifest_id in ids] if self.merges else []
        content = json.dumps([self.number, steps, attempts, *zip(*merges, strict=True)])
        return b64encode(zlib.compress(content.encode())).decode()

    @classmethod
    def of_text(cls, text: str | bytes) -> "TableEvidence | None":
        """Return the evidence in a text; None if the text is damaged."""
        try:
            number, steps, attempts, *merges = json.loads(zlib.decompress(b64decode(text)))
            ids = list(accumulate(steps))
            counts = (CountedMerge(*row) for row in zip(*merges, strict=True))
            of_merges = dict(zip(ids, counts, strict=True)) if merges else {}
            return cls(number, dict(zip(ids, attempts, strict=True)), of_merges)
        except (zlib.error, *MALFORMED):
            return None
