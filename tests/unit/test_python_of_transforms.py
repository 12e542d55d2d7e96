"""The user's own function on batches: its modules, what it may give back, and what its errors say."""

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.pipeline_text import changed
from tests.unit.test_sql_of_transforms import GIVEN, batch
from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline
from tidemark.transforms.base import Transformed
from tidemark.transforms.code import Code
from tidemark.transforms.python.transform import PythonTransform


def run(body: str, columns: dict[str, str] | None = None, **more: str) -> Transformed:
    """Six rows through ``logic.rows``, whose body is given."""
    source = f"import pyarrow as pa\nimport pyarrow.compute as pc\ndef rows(batch):\n    {body}\n"
    return through({"logic.py": source, **more}, columns)


def through(code: dict[str, str], columns: dict[str, str] | None = None) -> Transformed:
    transform = PythonTransform("logic:rows", code, columns, 60, 2**30)
    transform.schema(GIVEN)
    return transform.apply(batch())


def test_rows_that_a_filter_leaves_are_told_by_their_ordinals() -> None:
    made = run("return batch.filter(pc.greater(batch['id'], 3))")
    assert (made.kept.to_pylist(), made.filtered.to_pylist()) == ([4, 5], [0, 1, 2, 3])
    assert made.rows.schema == GIVEN


def test_as_many_rows_as_came_are_the_same_records() -> None:
    made = run("return pa.RecordBatch.from_arrays([pc.add(batch['id'], 1)], ['number'])", {"number": "BIGINT NOT NULL"})
    assert made.kept.to_pylist() == list(range(6))
    assert made.rows.schema == pa.schema([pa.field("number", pa.int64(), nullable=False)])
    assert made.rows.column("number").to_pylist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return batch.slice(1).drop_columns(['_ordinal'])", "gave 5 rows back for 6, without the column _ordinal"),
        ("return batch.take(pa.array([1, 0]))", "in another order"),
        ("return batch.take(pa.array([1, 1, 2]))", "in another order"),
        ("return batch.set_column(batch.schema.get_field_index('_ordinal'), '_ordinal', pc.add(batch['_ordinal'], 9))",
         "with other numbers in _ordinal"),
        ("return batch.drop_columns(['name'])", "gave the columns id, price, tags, place, seen back"),
        ("return batch.append_column('more', batch['id'])", "write columns in the pipeline file"),
        ("return batch.set_column(batch.schema.get_field_index('id'), 'id', batch['price'])",
         "gave column id back as double, and not as int64"),
        ("return batch.set_column(batch.schema.get_field_index('id'), 'id', pa.nulls(len(batch), pa.int64()))",
         "gave null back in column id"),
        ("return None", "gave NoneType back"),
        ("return batch.to_pylist()", "gave list back"),
    ],
)  # fmt: skip
def test_a_result_that_does_not_fit_fails_the_attempt(body: str, expected: str) -> None:
    with pytest.raises(WorkFailed, match=expected) as failed:
        run(body)
    assert "logic:rows" in failed.value.what
    assert "tidemark retry" in failed.value.next_step


def test_an_exception_names_file_and_line_and_only_the_row_that_raises() -> None:
    helper = "def check(value):\n    if value == 'n3':\n        raise ValueError(f'no {value!r}')\n"
    made = run("import helper; [helper.check(v.as_py()) for v in batch['name']]; return batch", **{"helper.py": helper})
    assert [error.index for error in made.errors] == [3]
    assert made.errors[0].reason == "code/helper.py:3: ValueError: no '..'"
    assert made.kept.to_pylist() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "sys_exit()"])
def test_a_function_that_wants_to_end_the_process_is_an_error_of_its_rows(body: str) -> None:
    assert len(run(body).errors) == 6


def test_what_it_prints_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run("print('row by row'); return batch")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "row by row\n")


def test_code_that_cannot_be_imported_fails_the_attempt_and_says_where() -> None:
    for text, expected in [
        ("import nothing_like_it\n", r"code/logic.py:1: ModuleNotFoundError"),
        ("x = 1\ny = x / 0\n", r"code/logic.py:2: ZeroDivisionError"),
        ("def other(batch): ...\n", "AttributeError"),
    ]:
        with pytest.raises(WorkFailed, match=f"cannot be imported: .*{expected}"):
            through({"logic.py": text})


def test_two_codes_with_modules_of_one_name_do_not_meet_and_leave_nothing_behind() -> None:
    logic = "from shop.tax import RATE\ndef rows(batch):\n    import shop.late\n    return batch.slice(0, RATE)\n"
    code_a, code_b = (
        {"logic.py": logic, "shop/tax.py": f"RATE = {rate}\n", "shop/late.py": "from shop import tax\n"}
        for rate in (2, 4)
    )
    first, second = (PythonTransform("logic:rows", code, None, 60, 2**30) for code in (code_a, code_b))
    for transform in (first, second):
        transform.schema(GIVEN)
    assert [made.rows.num_rows for made in (each.apply(batch()) for each in (first, second, first))] == [2, 4, 2]
    assert not {"logic", "shop", "shop.tax"} & set(sys.modules)


def test_a_module_of_ours_that_is_hidden_meanwhile_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    marker: Any = object()
    monkeypatch.setitem(sys.modules, "logic", marker)
    run("return batch")
    assert sys.modules["logic"] is marker


def pipeline(folder: Path, transform: str, **code: str) -> Path:
    for name, text in code.items():
        path = folder / "code" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    file = folder / "p.yaml"
    file.write_text(
        changed(("pipeline: flights", f"pipeline: flights\ncode: code\ntransform: [{{python: {transform}}}]"))
    )
    return file


def test_a_module_that_another_thread_imports_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Importing(set[str]):
        """Is asked for each module, and lets another one be imported meanwhile."""

        def __contains__(self, name: object) -> bool:
            monkeypatch.setitem(sys.modules, f"meanwhile_{name}", sys)
            return False

    code = Code({"prices.py": ""})
    code._roots = Importing()
    with code.importable():
        pass


def test_the_fingerprint_covers_every_module_and_its_function_and_no_code_runs(tmp_path: Path) -> None:
    source = "raise SystemExit('this must not run')\ndef rows(batch): return batch\ndef more(batch): return batch\n"
    first = load(pipeline(tmp_path, "'logic:rows'", logic=source, other="X = 1\n"), {}).fingerprint()
    again = load(pipeline(tmp_path, "{function: 'logic:rows'}", logic=source), {}).fingerprint()
    changed_code = load(pipeline(tmp_path, "'logic:rows'", other="X = 2\n"), {}).fingerprint()
    another = load(pipeline(tmp_path, "'logic:more'", other="X = 1\n"), {}).fingerprint()
    assert first == again
    assert len({first, changed_code, another}) == 3


@pytest.mark.parametrize(
    ("transform", "code", "expected"),
    [
        ("'logic:nothing'", {"logic": "def rows(batch): ...\n"}, "logic.py defines no nothing"),
        ("'lgic:rows'", {"logic": "def rows(batch): ...\n"}, "the code folder has no module lgic; it has logic.py"),
        ("'logic:rows'", {"logic": "def rows(batch: ...\n"}, r"logic.py:1 is not Python"),
        ("rows", {"logic": "def rows(batch): ...\n"}, "must be a function of the code folder such as prices:add_tax"),
        ("'logic:rows'", {"json": "x = 1\n", "logic": "def rows(batch): ...\n"}, "json is one of Python's own"),
        (
            "{function: 'logic:rows', columns: {id: NUMBERISH}}",
            {"logic": "def rows(batch): ...\n"},
            "is not a type of SQL",
        ),
        ("'logic:rows'", {}, "names a folder that cannot be read"),
    ],
)
def test_code_that_cannot_be_right_is_refused_when_the_file_is_read(
    tmp_path: Path, transform: str, code: dict[str, str], expected: str
) -> None:
    with pytest.raises(InvalidPipelines, match=expected):
        load(pipeline(tmp_path, transform, **code), {})


def test_columns_of_the_function_are_what_the_event_time_is_checked_against(tmp_path: Path) -> None:
    text = "def rows(batch): return batch\n"
    right = "{function: 'logic:rows', columns: {id: BIGINT, \"at\": TIMESTAMPTZ}}"
    assert load(pipeline(tmp_path, right, logic=text), {}).transform
    with pytest.raises(InvalidPipelines, match=r"event_time.field: is not in the schema; allowed: id"):
        load(pipeline(tmp_path, "{function: 'logic:rows', columns: {id: BIGINT}}", logic=text), {})


def test_a_wrong_type_is_refused_without_reading_a_file() -> None:
    columns = {"id": "INT), (SELECT content FROM read_text('/etc/passwd')"}
    transform = PythonTransform("logic:rows", {}, columns, 60, 2**30)
    with pytest.raises(ConfigurationError, match="is not a type of SQL"):
        transform.schema(GIVEN)


# The alarm may ring inside Hypothesis' callback of the garbage collector, where Python only prints it; it rings again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("swallows", [False, True])
def test_a_function_that_never_ends_is_ended_and_told_with_its_line_and_offsets(*, swallows: bool) -> None:
    loop = "    try:\n            len(batch)\n        except Exception:\n            pass" if swallows else "    pass"
    code = {"logic.py": f"def rows(batch):\n    while True:\n    {loop}\n"}
    transform = PythonTransform("logic:rows", code, None, 0.2, 2**30)
    transform.schema(GIVEN)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(WorkFailed, match=r"logic:rows has not ended after 0.2 s with a batch of 6 rows") as failed:
        transform.apply(batch())
    assert re.search(r"it was at code/logic\.py:[2-6]$", failed.value.what)
    assert failed.value.context["offsets"] == "[100,106)"
    assert signal.getsignal(signal.SIGALRM) == before
    assert "logic" not in sys.modules


def test_a_function_that_gives_too_much_back_is_told_with_its_size_and_offsets() -> None:
    text = "pa.array(['x' * 10_000] * len(batch), pa.string())"
    code = {"logic.py": f"import pyarrow as pa\ndef rows(batch): return pa.RecordBatch.from_arrays([{text}], ['t'])\n"}
    transform = PythonTransform("logic:rows", code, {"t": "VARCHAR"}, 60, 50_000)
    transform.schema(GIVEN)
    with pytest.raises(
        WorkFailed, match=r"logic:rows gave 60,\d+ bytes back for a batch of 6 rows, and max_bytes is 50,0"
    ) as failed:
        transform.apply(batch())
    assert failed.value.context["offsets"] == "[100,106)"
    assert failed.value.context["topic"]
    allowed = PythonTransform("logic:rows", code, {"t": "VARCHAR"}, 60, 70_000)
    allowed.schema(GIVEN)
    assert allowed.apply(batch()).rows.num_rows == 6


def test_limits_of_time_and_size_come_from_the_file_and_leave_the_fingerprint(tmp_path: Path) -> None:
    text = "def rows(batch): return batch\n"
    first = load(pipeline(tmp_path, "'logic:rows'", logic=text), {})
    second = load(pipeline(tmp_path, "{function: 'logic:rows', timeout: 9s, max_bytes: 5MiB}", logic=text), {})
    limits = [
        (order.options["limit_s"], order.options["max_bytes"]) for (order,) in map(Pipeline.transforms, (first, second))
    ]
    assert limits == [(300, 2**30), (9, 5 * 2**20)]
    assert first.fingerprint() == second.fingerprint()
