"""Whatever the package imports is declared in pyproject.toml: in the plain install, or in the extra of its room.

What is installed here says which distribution a module comes from, and what a distribution brings with it. That an
empty environment with nothing but these can import all of it, tests/spark/test_installed_wheel.py shows.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.pipeline_text import changed, problems
from tests.unit.test_architecture import MODULES, PACKAGE, short
from tidemark import extras
from tidemark.errors import ConfigurationError
from tidemark.extras import EXTRAS
from tidemark.kinds import PROVIDERS
from tidemark.model.order import TransformOrder
from tidemark.pipeline.loader import load
from tidemark.transforms.registry import open_transform

PROJECT = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]

# The modules that may import what an extra brings; all others must do with the plain install.
ROOMS_OF_EXTRAS = {
    "airflow/": "airflow",
    "providers/avro/": "avro",
    "providers/azure/": "azure",
    "providers/delta/": "delta",
    "providers/iceberg/": "iceberg",
    "providers/msk/": "msk",
    "providers/protobuf/": "protobuf",
    "providers/topic/": "topic",
    "sinks/formats/avro.py": "avro",
    "spark/connected.py": "connect",
    "spark/python_daemon.py": "connect",  # of the server
    "spark/server.py": "connect",
    "spark/server_doctor.py": "connect",
}

# Imported, and not declared by its own name: it comes with what is declared, in the version that this one wants.
COMES_WITH = {
    "azure": "azure-storage-blob",
    "botocore": "boto3",
    "py4j": "pyspark",
    "pydantic_core": "pydantic",
    "grpc": "pyspark",
    "grpc_status": "pyspark",
    "pandas": "pyspark",
    "pyiceberg_core": "pyiceberg",
    # Airflow's own, for pages, tasks and hooks in its processes.
    "airflow": "apache-airflow",
    "fastapi": "apache-airflow",
    "itsdangerous": "apache-airflow",
    "jinja2": "apache-airflow",
    "psutil": "apache-airflow",
    "sqlalchemy": "apache-airflow",
    "starlette": "apache-airflow",
    "structlog": "apache-airflow",
}
NOT_DECLARED = {
    "airflow.providers.openlineage": "the same",
    "openlineage": "lineage is sent where Airflow has its provider, which is asked for before the import",
}
# Declared, though no module of ours names it.
NOT_IMPORTED = {
    "thrift": "PyIceberg's client of Hive's catalogs",
}

# Every file that imports by text, and what it may so import beside modules of tidemark.
BY_TEXT: Mapping[str, tuple[str, ...]] = {
    "__init__.py": (),
    "airflow/lineage.py": ("openlineage",),
    "airflow/shell.py": ("airflow",),  # asked for only
    "cli/main.py": (),
    "providers/protobuf/schemas/known.py": ("google.protobuf.timestamp_pb2",),
    "extras.py": (),  # and whether a module of an extra is there
    "kinds.py": (),
    "processing/storable.py": (),  # checks of rows that providers bring
    "sinks/formats/base.py": (),
    "providers/topic/schema.py": (),
    "spark/classes.py": ("pyspark",),
    "spark/jars.py": ("pyspark",),
    "spark/frames.py": (),  # the modules of a pipeline's own code
    "spark/probe.py": ("pyarrow", "pyspark", "psycopg"),
    "spark/python_daemon.py": ("pandas", "pyarrow.parquet", "pyarrow.compute", "pyspark.worker"),
    "spark/session.py": ("pyspark",),
    "spark/shipped.py": (),  # the packages that bring kinds
    "transforms/python/transform.py": (),  # the modules of a pipeline's own code
}
BY_TEXT_OF_OTHERS: Mapping[str, tuple[str, ...]] = {
    # PyIceberg's clients of the catalogs rest, glue and sql, and SQLAlchemy's driver for PostgreSQL.
    "providers/iceberg/catalog.py": ("requests", "boto3", "sqlalchemy", "psycopg"),
    "providers/iceberg/columns.py": ("pyiceberg_core",),  # the values of partitions
    "spark/connected.py": ("grpc_status",),  # PySpark's client
    "spark/job.py": ("pandas",),  # PySpark, where it passes batches to Python
}
# The modules by which each extra is known that brings any, and the extras that bring none.
MODULES_OF_EXTRAS: Mapping[str, tuple[str, ...]] = {
    **{name: provider.libraries for name, provider in PROVIDERS.by_name.items() if provider.libraries},
    **EXTRAS,
    "hive": (*PROVIDERS.by_name["iceberg"].libraries, "thrift"),
}
EMPTY = {name for name, provider in PROVIDERS.by_name.items() if not provider.libraries} - {"core"}
CALLS = {"__import__", "find_spec", "import_for", "import_module"}


class Import(NamedTuple):
    path: str
    module: str

    @property
    def first(self) -> str:
        return self.module.partition(".")[0]


def imports() -> Iterator[Import]:
    """Every import of the package of what is neither its own nor Python's, also within functions and by text."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (Import(short(path), name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield Import(short(path), str(node.module))
    for by_text in (BY_TEXT, BY_TEXT_OF_OTHERS):
        yield from (Import(path, module) for path, modules in by_text.items() for module in modules)


@cache
def foreign() -> tuple[Import, ...]:
    return tuple(sorted({each for each in imports() if each.first not in {"tidemark", *sys.stdlib_module_names}}))


def of_extra(path: str) -> str:
    return next((extra for room, extra in ROOMS_OF_EXTRAS.items() if path.startswith(room)), "")


@cache
def declared(extra: str) -> frozenset[str]:
    """The distributions of the plain install, or of that and an extra, with the extras of them that are asked for."""
    lines = [*PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] if extra else [])]
    names = set()
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            names |= {name for inner in requirement.extras for name in declared(inner)}
        else:
            names |= {requirement.name, *(f"{requirement.name}[{inner}]" for inner in requirement.extras)}
    return frozenset(names)


def bare(name: str) -> str:
    """The name of a distribution, without the extras of it that are asked for."""
    return canonicalize_name(name.partition("[")[0])


@cache
def owners() -> Mapping[str, set[str]]:
    """The distributions that have a file, by its path without endings: ``google/protobuf/message``."""
    by_place = defaultdict(set)
    for each in distributions():
        owner = canonicalize_name(each.name)
        for line in (each.read_text("RECORD") or "").splitlines():
            file = line.partition(",")[0]
            if file.endswith((".py", ".so")):
                head, _, name = file.rpartition("/")
                by_place["/".join(filter(None, (head, name.partition(".")[0])))].add(owner)
    return by_place


def owners_of(module: str) -> set[str]:
    place = module.replace(".", "/")
    return owners().get(place, set()) | owners().get(f"{place}/__init__", set())


@cache
def brought_by(name: str) -> frozenset[str]:
    """What comes with a distribution, by the metadata of those that are installed; NAME[EXTRA] for an extra of it."""
    brought: set[str] = set()
    waiting = [Requirement(name)]
    while waiting:
        asked = waiting.pop()
        for line in distribution(asked.name).requires or []:
            inner = Requirement(line)
            marker = inner.marker
            wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *asked.extras))
            if wanted and canonicalize_name(inner.name) not in brought:
                brought.add(canonicalize_name(inner.name))
                waiting.append(inner)
    return frozenset(brought)


def comes_from(module: str, names: AbstractSet[str]) -> bool:
    """Whether a module comes from these distributions, or with one of them where the table says so."""
    owned = owners_of(module) or {canonicalize_name(module)}  # thrift is not installed here
    bringing = COMES_WITH.get(module.partition(".")[0])
    return bool(owned & {bare(name) for name in names}) or any(
        bare(name) == bringing and owned & brought_by(name) for name in names
    )


def is_declared(each: Import) -> bool:
    return comes_from(each.module, declared(of_extra(each.path)))


def test_every_import_is_declared_in_the_plain_install_or_in_the_extra_of_its_room() -> None:
    assert len(foreign()) > 150
    asked_for = tuple(NOT_DECLARED)
    assert [each for each in foreign() if not each.module.startswith(asked_for) and not is_declared(each)] == []


@pytest.mark.parametrize(
    ("path", "module", "right"),
    [
        ("sinks/files/writer.py", "pyiceberg.schema", False),
        ("spark/job.py", "grpc", False),
        ("decoders/records.py", "numpy", False),
        ("decoders/records.py", "jinja2", False),
        ("decoders/records.py", "google.rpc.status_pb2", False),  # of another distribution than google.protobuf
        ("decoders/records.py", "google.protobuf.message", False),
        ("providers/protobuf/decoder.py", "google.protobuf.message", True),
        ("spark/connected.py", "grpc", True),
        ("providers/iceberg/table.py", "pyiceberg.schema", True),
    ],
)
def test_the_comparison_knows_what_is_declared(path: str, module: str, right: bool) -> None:
    assert is_declared(Import(path, module)) is right


def test_nothing_is_declared_that_nobody_imports_and_no_table_has_an_entry_without_a_use() -> None:
    used = {name for each in foreign() for name in owners_of(each.module)} | {*COMES_WITH.values()}
    names = {bare(name) for extra in ("", *MODULES_OF_EXTRAS) for name in declared(extra)}
    assert names - used == set(NOT_IMPORTED)
    assert set(COMES_WITH) <= {each.first for each in foreign()}
    assert all(any(each.module.startswith(name) for each in foreign()) for name in NOT_DECLARED)
    assert all(any(short(path).startswith(room) for path in MODULES) for room in ROOMS_OF_EXTRAS)


def test_every_import_by_text_has_been_looked_at() -> None:
    calling = {
        short(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in CALLS
    }
    assert calling == set(BY_TEXT)


def test_the_modules_by_which_an_extra_is_known_come_with_it_and_not_with_the_plain_install() -> None:
    assert {*MODULES_OF_EXTRAS, *EMPTY, "dev"} == set(PROJECT["optional-dependencies"])
    assert all(PROJECT["optional-dependencies"][extra] == [] for extra in EMPTY)
    for extra, modules in MODULES_OF_EXTRAS.items():
        for module in modules:
            assert comes_from(module, declared(extra)), module
            assert not comes_from(module, declared("")), module


ICEBERG = (
    "  - files:\n      root: lake\n",
    "  - iceberg:\n      connection: lakehouse\n      table: sales.flights\n      warehouse: lake\n",
)
AZURE = ("root: lake", "root: abfss://lake@company.dfs.core.windows.net/flights")
DELTA = ("  - files:\n      root: lake\n", "  - delta:\n      location: lake\n")
HIVE = ("  - files:\n      root: lake\n", "  - iceberg:\n      connection: c\n      table: a.b\n      catalog: hive\n")
CONNECT = ("sinks:\n", "spark:\n  engine: connect\nsinks:\n")


@pytest.mark.parametrize(
    ("absent", "change", "place", "extra"),
    [
        ("azure.storage.blob", AZURE, "sinks[0].files.root", "azure"),
        ("deltalake", DELTA, "sinks[0].delta", "delta"),
        ("pyiceberg", ICEBERG, "sinks[0].iceberg", "iceberg"),
        ("requests", ICEBERG, "sinks[0].iceberg", "iceberg"),
        ("thrift", HIVE, "sinks[0].iceberg", "hive"),
        ("grpc", CONNECT, "spark.engine", "connect"),
    ],
)
def test_a_pipeline_file_that_needs_an_extra_which_is_not_there_is_refused_with_the_words_to_install_it(
    absent: str, change: tuple[str, str], place: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = [module for modules in MODULES_OF_EXTRAS.values() for module in modules if module != absent]
    file = tmp_path / "flights.yaml"
    file.write_text(changed(change))
    monkeypatch.setattr(extras, "is_installed", present.__contains__)
    [problem] = problems(file)
    assert problem.endswith(
        f': {place}: needs {absent}, not installed here; install it: pip install "tidemark[{extra}]"'
    )
    monkeypatch.setattr(extras, "is_installed", [*present, absent].__contains__)
    load(file)


def test_what_a_command_or_an_executor_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", set[str]().__contains__)
    with pytest.raises(ConfigurationError) as refused:
        extras.require("connect", "a server")
    assert refused.value.what == "a server needs grpc, grpc_status, not installed here"
    assert refused.value.next_step == 'pip install "tidemark[connect]"'
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.delitem(sys.modules, "tidemark.transforms.query", raising=False)
    monkeypatch.delitem(sys.modules, "tidemark.transforms.sql.transform", raising=False)
    with pytest.raises(ConfigurationError, match="sql needs the package duckdb, which this Python does not have") as at:
        open_transform(TransformOrder("sql", {}))
    assert at.value.next_step.endswith("pip install duckdb")


def test_what_the_package_itself_lacks_is_no_matter_of_installing() -> None:
    with pytest.raises(ModuleNotFoundError):
        extras.import_for("nothing", "tidemark.sinks.nothing.writer", "")
