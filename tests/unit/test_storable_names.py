"""Names of columns, and of fields inside them, are judged in one place: by what no engine can take, and by what a sink
declares."""

import pyarrow as pa
import pytest

from tidemark.errors import SinkRefused
from tidemark.sinks.storable_names import StorableNames, problem_with_names, refuse_clash
from tidemark.text import column_of_arrow, folded

ANY = StorableNames()
STRICT = StorableNames(
    unfit="[ %]", unfit_why="no blank", longest=8, reserved={"day": "a folder"}, reserved_exactly={"ctid": "a system"},
    joined_paths=True,
)  # fmt: skip


def columns(*names: str) -> pa.Schema:
    return pa.schema([pa.field(name, pa.int64()) for name in names])


def inside(*names: str) -> list[pa.Schema]:
    """A struct with fields of these names, at each place where one can be."""
    struct = pa.struct(list(columns(*names)))
    kinds = [
        struct, pa.list_(struct), pa.map_(pa.string(), struct), pa.map_(struct, pa.string()),
        pa.list_(pa.list_(struct)), pa.struct([("x", struct)]),
        pa.struct([("x", pa.list_(pa.map_(pa.string(), struct)))]),
    ]  # fmt: skip
    return [pa.schema([("id", pa.int64()), ("s", kind)]) for kind in kinds]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("id", "ID"), ("straße", "STRASSE"), ("é", "e\u0301"), ("É", "e\u0301"), ("irmak", "\u0131rmak"), ("id", "İd"),
        ("s", "\u017f"), ("k", "\u212a"), ("ǆ", "ǅ"), ("\u03c3", "\u03c2"),
    ],
)  # fmt: skip
def test_two_names_that_an_engine_may_take_for_one_are_refused_wherever_they_stand(first: str, second: str) -> None:
    assert folded(first) == folded(second)
    for schema in [columns(first, "n", second), *inside(first, "n", second)]:
        problem = problem_with_names(ANY, schema)
        assert problem is not None
        assert problem.endswith(" by case only, and most engines see one name")
        assert any(f"it differs from {shown} by" in problem for shown in (first, repr(first)))


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a_b", "ab"), ("名", "前"), ("o", "ö"), ("a.b", "a")])
def test_other_names_are_not(first: str, second: str) -> None:
    for schema in [columns(first, second), *inside(first, second)]:
        assert problem_with_names(ANY, schema) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "its name is empty"), ("a\0b", "no name has NUL"),
    ],
)  # fmt: skip
def test_what_no_sink_can_store_is_refused_wherever_it_stands(name: str, problem: str) -> None:
    for schema in [columns("id", name), *inside("id", name)]:
        refused = problem_with_names(ANY, schema)
        assert refused is not None
        assert refused.endswith(problem)


@pytest.mark.parametrize(
    ("name", "problem", "stands_inside"),
    [
        ("a b", "no blank", False), ("a%", "no blank", False), ("Day", "a folder", True), ("ctid", "a system", True),
        ("CTID", None, True), ("123456789", "a name has at most 8 bytes", True),
        ("ääääb", "a name has at most 8 bytes", True), ("ääää", None, True),
        ("_x", "such names are Tidemark's own", True),
    ],
)  # fmt: skip
def test_a_sink_declares_what_else_it_cannot_store(name: str, problem: str | None, stands_inside: bool) -> None:
    refused = problem_with_names(STRICT, columns("id", name))
    assert refused is None if problem is None else str(refused).endswith(problem)
    for schema in inside("id", name):
        assert (problem_with_names(STRICT, schema) is None) == stands_inside


@pytest.mark.parametrize(
    ("dotted", "kind", "fits"),
    [
        ("a.b", pa.struct([("b", pa.int8())]), False), ("a.b", pa.struct([("c", pa.int8())]), False),
        ("a.b.c", pa.struct([("x", pa.int8())]), False), ("A.element", pa.list_(pa.int8()), False),
        ("a.value", pa.map_(pa.string(), pa.int8()), False), ("a.b", pa.int8(), True),
        ("b.a", pa.struct([("b", pa.int8())]), True), ("ab.c", pa.struct([("c", pa.int8())]), True),
    ],
)  # fmt: skip
def test_a_name_that_could_be_a_path_is_refused_where_fields_are_known_by_paths(
    dotted: str, kind: pa.DataType, fits: bool
) -> None:
    for fields in ([(dotted, pa.int64()), ("a", kind)], [("a", kind), (dotted, pa.int64())]):
        for schema in (pa.schema(fields), pa.schema([("x", pa.list_(pa.struct(fields)))])):
            assert (problem_with_names(StorableNames(joined_paths=True), schema) is None) == fits
            assert problem_with_names(ANY, schema) is None


def test_a_table_that_has_the_name_in_another_case_is_refused_by_both_names() -> None:
    new = pa.field("id", pa.int64())
    with pytest.raises(SinkRefused, match=r"column s\.id as the rows do: it differs from ID by case only"):
        refuse_clash(new, [pa.field("n", pa.int64()), pa.field("ID", pa.int64())], ("s",), {})
    with pytest.raises(SinkRefused, match=r"id\.x could be the path of a field inside id"):
        refuse_clash(pa.field("id.x", pa.int64()), [pa.field("id", pa.struct([("y", pa.int8())]))], (), {})
    refuse_clash(new, [pa.field("n", pa.int64())], (), {})


@pytest.mark.parametrize("name", [".b", ".", ".b.c", ".b[0]", ".b\\c", "[b", "b.c", "\\b"])
def test_functions_of_arrow_take_a_name_that_looks_like_a_path_as_a_name(name: str) -> None:
    rows = pa.table({"b": [0, 1], name: [2, 1]})
    assert rows.sort_by([(column_of_arrow(name), "ascending")]).column(name).to_pylist() == [1, 2]
    groups = rows.group_by([column_of_arrow(name)], use_threads=False).aggregate([("b", "sum")])
    assert groups.column(name).to_pylist() == [2, 1]
