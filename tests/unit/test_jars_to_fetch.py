"""How locked jars are divided among the processes that fetch them."""

from collections import Counter
from collections.abc import Sequence

import pytest

from sandbox.bootstrap.jars import Jar, locked, parts

SETS = sorted({jar.set for jar in locked()})
DEBEZIUM = ("connect", "converter", "debezium", "kafka")


def of_sets(*names: str) -> list[Jar]:
    return [jar for jar in locked() if jar.set in names]


@pytest.mark.parametrize("names", [*([name] for name in SETS), DEBEZIUM, SETS], ids=", ".join)
def test_each_file_is_fetched_once_and_no_process_gets_two_of_one_module(names: Sequence[str]) -> None:
    jars = of_sets(*names)
    divided = parts(jars)
    fetched = Counter((jar.organisation, jar.file_name) for _, part in divided for jar in part)
    assert fetched == Counter({(jar.organisation, jar.file_name) for jar in jars})
    for cache, part in divided:
        assert part, cache
        assert max(Counter((jar.organisation, jar.name) for jar in part).values()) == 1, cache


def test_sets_that_are_fetched_together_have_other_revisions_of_a_module() -> None:
    """Else the test above shows nothing."""
    modules = {(jar.organisation, jar.name, jar.revision) for jar in of_sets(*DEBEZIUM)}
    assert max(Counter(module[:2] for module in modules).values()) > 1
