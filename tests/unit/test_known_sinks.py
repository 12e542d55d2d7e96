"""What a pipeline file may say about sinks that the manifest database knows by name and target."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.pipeline_text import GOOD, changed
from tidemark.errors import ConfigurationError
from tidemark.lifecycle.known_sinks import refuse_unlike
from tidemark.model.manifest import KnownSink
from tidemark.pipeline.loader import load

DAY = datetime(2024, 3, 1, tzinfo=UTC)
TABLE = "connection warehouse, table public.prices"


def known(name: str, target: str, *, renamed_from: str | None = None, retired: bool = False) -> KnownSink:
    return KnownSink(name, target, DAY, renamed_from, DAY if retired else None)


@pytest.mark.parametrize(
    ("sinks", "message", "next_step"),
    [
        ([known("lake", "/data/lake")], "is known as sink lake", "tidemark rename sink flights lake files --why TEXT"),
        ([known("files", "/data/other")], "was planned into /data/other", "tidemark fill flights NAME --why TEXT"),
        ([known("lake", "/data")], "the targets of two sinks overlap", "tidemark retire sink flights lake --why TEXT"),
        ([known("lake", "/data/lake/deep")], "the targets of two sinks overlap", "a target of its own"),
        ([known("files", "/data/lake", retired=True)], "was retired on 2024-03-01", "give the sink another name"),
        (
            [known("files", "/data/lake", renamed_from="lake")],
            "is being renamed from lake",
            "tidemark rename sink flights lake files --why TEXT",
        ),
    ],
    ids=["renamed", "moved", "below a known one", "above a known one", "retired", "not ended"],
)
def test_a_file_that_is_unlike_what_is_known_is_refused(
    write: Callable[..., Path], sinks: list[KnownSink], message: str, next_step: str
) -> None:
    pipeline = load(write(changed(("root: lake", "root: /data/lake"))), {})
    with pytest.raises(ConfigurationError) as refused:
        refuse_unlike(pipeline, sinks)
    assert message in refused.value.what
    assert next_step in refused.value.next_step.replace(pipeline.name, "flights")


@pytest.mark.parametrize(
    "sinks",
    [
        [],
        [known("files", "/data/lake")],
        [known("files", "/data/lake"), known("prices", TABLE)],
        [known("lake", "/data/lake", retired=True)],
        [known("lake", "/data", retired=True), known("files", "/data/lake")],
    ],
    ids=["nothing known", "the same", "another left the file", "the target of a retired one", "below a retired one"],
)
def test_a_file_may_have_what_is_known_and_what_is_new(write: Callable[..., Path], sinks: list[KnownSink]) -> None:
    refuse_unlike(load(write(changed(("root: lake", "root: /data/lake"))), {}), sinks)


def test_a_new_sink_under_the_name_of_a_renamed_one_is_refused_as_a_renaming(write: Callable[..., Path]) -> None:
    both = "root: /data/lake\n  - files:\n      name: lake\n      root: /data/new"
    pipeline = load(write(changed(("root: lake", both))), {})
    with pytest.raises(ConfigurationError, match="sink files writes to /data/lake, which is known as sink lake"):
        refuse_unlike(pipeline, [known("lake", "/data/lake")])


def test_a_table_meets_no_lake(write: Callable[..., Path]) -> None:
    pipeline = load(write(GOOD), {})
    assert not pipeline.sinks[0].meets_target(TABLE)
