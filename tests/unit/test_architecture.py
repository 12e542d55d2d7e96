"""Who may import what: the whole syntax tree is walked, so an import inside a function counts too."""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
MODULES = sorted(PACKAGE.rglob("*.py"))
DOORWAYS = [path for folder in ("dags", "plugins", "spark_jobs") for path in sorted((CHECKOUT / folder).rglob("*.py"))]
OURS = [*MODULES, *DOORWAYS, *sorted((CHECKOUT / "sandbox").rglob("*.py"))]

DRIVERS = {"airflow", "boto3", "botocore", "confluent_kafka", "psycopg", "pyspark", "duckdb"}
PURE = ("offsets", "planner", "model", "layout", "pipeline", "errors", "batch")

# Below include/tidemark, unless the path begins with another folder of the checkout.
MAY_IMPORT = {
    "airflow": ("airflow/", "ui/", "dags/", "plugins/"),
    "pyspark": ("spark/", "decoders/", "transforms/", "sinks/", "spark_jobs/"),
    "confluent_kafka": ("kafka.py", "kafka_refusals.py"),
    "boto3": ("s3.py", "s3_client.py"),
    "botocore": ("s3.py", "s3_client.py"),
    "psycopg": ("manifest/", "sinks/postgres", "postgres_errors.py"),
    "fastavro": ("sinks/avro_files.py",),
    "cryptography": ("certificates.py",),
}


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)


@cache
def third_parties(path: Path) -> set[str]:
    """The distributions a file imports, by their first name, and "tidemark"."""
    return {name.partition(".")[0] for name in imported(path)} - set(sys.stdlib_module_names)


@cache
def closure(path: Path) -> set[Path]:
    """A module of ours and every module of ours that importing it runs, packages' ``__init__`` too."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for name in imported(one):
            words = name.split(".")
            if words[0] == "tidemark":
                waiting += [file for end in range(1, len(words) + 1) for file in files(words[1:end])]
    return found


def files(words: list[str]) -> list[Path]:
    place = PACKAGE.joinpath(*words)
    return [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]


def short(path: Path) -> str:
    return str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else CHECKOUT))


@pytest.mark.parametrize("driver", MAY_IMPORT)
def test_a_driver_is_imported_only_where_the_design_says(driver: str) -> None:
    wrong = [
        short(path)
        for path in [*MODULES, *DOORWAYS]
        if driver in third_parties(path) and not short(path).startswith(MAY_IMPORT[driver])
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PURE)
def test_importing_a_pure_module_imports_no_driver(name: str) -> None:
    wrong = {short(path): third_parties(path) & DRIVERS for path in closure(PACKAGE / f"{name}.py")}
    assert {path: drivers for path, drivers in wrong.items() if drivers} == {}


def test_executors_need_only_the_standard_library_and_pyarrow() -> None:
    sinks = PACKAGE / "sinks"
    executed = [PACKAGE / "batch.py", sinks / "files_writer.py", sinks / "parquet_files.py", sinks / "json_lines.py"]
    foreign = {
        short(path): third_parties(path) - {"tidemark", "pyarrow"} for start in executed for path in closure(start)
    }
    assert {"batch.py", "sinks/files_writer.py", "sinks/formats.py", "decoders/strict_json.py"} <= set(foreign)
    assert {path: names for path, names in foreign.items() if names} == {}


def test_executors_that_write_avro_need_only_its_library_beside() -> None:
    foreign = {
        short(path): third_parties(path) - {"tidemark", "pyarrow", "fastavro"}
        for path in closure(PACKAGE / "sinks" / "avro_files.py")
    }
    assert "sinks/formats.py" in foreign
    assert {path: names for path, names in foreign.items() if names} == {}


def test_executors_that_write_to_postgresql_need_only_its_driver_beside() -> None:
    foreign = {
        short(path): third_parties(path) - {"tidemark", "pyarrow", "psycopg"}
        for path in closure(PACKAGE / "sinks" / "postgres_writer.py")
    }
    assert "sinks/postgres_connection.py" in foreign
    assert {path: names for path, names in foreign.items() if names} == {}


def test_executors_that_write_to_s3_need_only_its_client_beside() -> None:
    foreign = {
        short(path): third_parties(path) - {"tidemark", "boto3", "botocore"} for path in closure(PACKAGE / "s3.py")
    }
    assert {"s3_client.py", "objectstore.py"} <= set(foreign)
    assert {path: names for path, names in foreign.items() if names} == {}


def test_no_module_knows_a_face_that_calls_it() -> None:
    inner = [path for path in MODULES if "/" not in short(path) and not path.stem.startswith(("cli", "presenting"))]
    faces = ("tidemark.cli", "tidemark.airflow", "tidemark.presenting", "tidemark.spark")
    assert [short(path) for path in inner if any(name.startswith(faces) for name in imported(path))] == []


def test_the_closure_follows_imports_of_packages_and_of_names_in_modules() -> None:
    assert PACKAGE / "manifest" / "__init__.py" in closure(PACKAGE / "lifecycle.py")
    assert PACKAGE / "kafka.py" in closure(PACKAGE / "lifecycle.py")
    assert "confluent_kafka" in third_parties(PACKAGE / "kafka.py")


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {short(path): len(path.read_text().splitlines()) for path in OURS}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3])
def test_nothing_is_left_for_later_in_a_comment(word: str) -> None:
    everything = [*OURS, *sorted((CHECKOUT / "tests").rglob("*.py"))]
    assert [short(path) for path in everything if word in path.read_text()] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty_words = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [short(path) for path in OURS if empty_words & set(path.stem.split("_"))] == []


def test_modules_of_tests_have_names_of_their_own() -> None:
    names = Counter(file.name for file in (CHECKOUT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == [], "pytest imports them by these names"
