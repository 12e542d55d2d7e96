from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.paths import Layout, ObjectName, RecordName, dead_letter_folder, may_meet, staging_folder, stream_folder

WHEN = datetime(2013, 1, 2, 3, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "folder", "finest"),
    [
        ("raw/{stream}/%Y/%m/%d/%H", "raw/flights/2013/01/02/03", "hour"),
        ("raw/{stream}/%Y/%m/%d", "raw/flights/2013/01/02", "day"),
        ("{pipeline}/{stream}/dt=%Y-%m-%d", "demo/flights/dt=2013-01-02", "day"),
        ("{stream}", "flights", "none"),
    ],
)
def test_a_layout_says_the_folder_of_a_moment(pattern: str, folder: str, finest: str) -> None:
    assert Layout(pattern).folder("demo", "flights", WHEN) == folder
    assert Layout(pattern).finest == finest


@pytest.mark.parametrize(
    ("layout", "other", "meet"),
    [
        ("raw/{stream}/%Y/%m/%d/%H", "raw/{stream}/%Y/%m/%d/%H", True),
        ("raw/{stream}/%Y/%m/%d/%H", "raw/{stream}/%Y/%m/%d", True),
        ("raw/{stream}", "raw/{stream}/%Y", True),
        ("raw/{stream}/%Y-%m", "raw/{stream}/2024-03", True),
        ("raw/{stream}/dt=%Y%m%d", "raw/{stream}/%Y%m%d", False),
        ("raw/{stream}/%Y", "daily/{stream}/%Y", False),
        ("raw/{stream}/%Y", "raw/{stream}s/%Y", False),
        ("{pipeline}/{stream}/%Y", "raw/{stream}/%Y", False),
        ("raw2/{stream}", "raw3/{stream}", False),
    ],
)
def test_schedule_15_folders_of_two_layouts_meet_when_a_reader_of_one_sees_files_of_the_other(
    layout: str, other: str, meet: bool
) -> None:
    folders, others = (f"/lake/{Layout(pattern).folders('demo', 'flights')}" for pattern in (layout, other))
    assert (may_meet(folders, others), may_meet(others, folders)) == (meet, meet)


@pytest.mark.parametrize(
    ("topic", "folder"),
    [("flights", "flights"), ("_orders", "%5Forders"), (".x", "%2Ex"), ("a/b", "a%2Fb"), ("a%b", "a%25b")],
)
def test_a_stream_is_one_folder_that_readers_do_not_skip(topic: str, folder: str) -> None:
    assert stream_folder(topic) == folder


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_streams_never_share_a_folder(stream: str, other_stream: str) -> None:
    assert (stream_folder(stream) == stream_folder(other_stream)) == (stream == other_stream)
    assert "/" not in stream_folder(stream), "I27 inside the root"
    assert stream_folder(stream) not in (".", "..")


@given(
    st.integers(1, 10**12), st.integers(1, 10**5), st.integers(0, 10**5), st.integers(0, 10**18), st.integers(0, 10**6)
)
def test_a_name_is_parsed_to_what_it_was_built_from(
    manifest: int, attempt: int, partition: int, start: int, part: int
) -> None:
    for span in ((partition, start, start + 7), None):
        name = ObjectName(manifest, attempt, span, part, "parquet")
        assert ObjectName.parse(f"raw/x/{name}") == name
    record = RecordName("flights", manifest, attempt)
    assert RecordName.parse(str(record)) == record


@pytest.mark.parametrize(
    "path",
    [
        "raw/x/part-0.parquet",
        "0000000001-a1.parquet",
        "0000000001-a0001-p00000-00000.parquet",
        "_manifests/_owner.json",
        "",
    ],
)
def test_a_name_made_by_others_is_not_ours(path: str) -> None:
    assert ObjectName.parse(path) is None
    assert RecordName.parse(path) is None


def test_names_sort_as_numbers() -> None:
    names = [str(ObjectName(manifest, 1, (0, 5, 10), 0, "parquet")) for manifest in (2, 10, 100)]
    assert names == sorted(names)


def test_private_folders_begin_with_a_sign_that_readers_skip() -> None:
    assert staging_folder(7, 2) == "_staging/0000000007/0002"
    assert dead_letter_folder("flights") == "_dead_letters/flights"
