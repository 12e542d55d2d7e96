"""Which manifests can be folded together: whole, and on each chain the oldest."""

import pytest

from tidemark.operations.archive import foldable

CASES = {
    "all of one chain": ({1: [1, 2, 3]}, [], [1, 2, 3]),
    "up to the first that may not": ({1: [1, 2, 3, 4]}, [3], [1, 2]),
    "lost and archived ranges are no obstacle": ({1: [None, 1, None, 2, None]}, [], [1, 2]),
    "nothing below a manifest that may not": ({1: [1, 2]}, [1], []),
    "never half a manifest": ({1: [1, 2], 2: [3, 1]}, [3], []),
    "what waits on one chain waits on all": ({1: [1, 2, 3], 2: [1, 9, 2], 3: [2, 3]}, [9], [1]),
    "a manifest with ranges on other chains than its neighbour": ({1: [1, 3], 2: [2, 3]}, [], [1, 2, 3]),
    "an older slice with a higher number, since the anchor went back": ({1: [7, 8, 1, 2]}, [2], [1, 7, 8]),
    "a manifest that is split by lost offsets": ({1: [1, None, 1, 2]}, [2], [1]),
    "a split manifest of which a part was not looked at": ({1: [1, None]}, [], []),
    "nothing": ({}, [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_manifest_is_folded_whole_and_only_from_the_anchor_on(case: str) -> None:
    chains, refused, expected = CASES[case]
    ranges_of: dict[int, int] = {}
    for parts in chains.values():
        for manifest_id in parts:
            if manifest_id is not None:
                ranges_of[manifest_id] = ranges_of.get(manifest_id, 0) + 1
    if "not looked at" in case:
        ranges_of[1] += 1
    assert foldable(chains, ranges_of, refused) == expected
