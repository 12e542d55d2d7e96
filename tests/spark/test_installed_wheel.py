"""Tidemark as a user installs it: a wheel, in an environment that has never seen this checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from sandbox.bootstrap.install import TOOLS
from sandbox.services.postgres import Postgres
from tests.unit.test_architecture import MODULES, short
from tests.unit.test_declared_imports import MODULES_OF_EXTRAS, bare, brought_by, declared, of_extra
from tests.worlds.world import World
from tidemark.lifecycle.attempt import process
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.spark.orders import read_receipt, write_order
from tidemark.spark.session import spark_configuration
from tidemark.storage.local import LocalStore

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
EXAMPLES = CHECKOUT / "include" / "pipelines" / "examples"
UV = [str(TOOLS / "bin" / "uv"), "--quiet", "--no-config"]
PYSPARK = ("pyspark", "pyspark-client")  # both have the same folder

IMPORTED = """
import importlib, json, sys

absent = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        absent[name] = repr(error)
print(json.dumps(absent))
"""
ASKED = """
import sys

from tidemark.providers.iceberg.catalog import OpenCatalog
from tidemark.providers.iceberg.settings import Settings

settings = Settings(catalog=sys.argv[1], connection="c", table="a.b", warehouse="/nowhere")
address = {"conn_type": "http", "host": "127.0.0.1", "port": 9, "login": "u", "password": "p", "schema": ""}
opened = OpenCatalog(settings, lambda _: address)
with opened.used():
    opened.catalog.list_namespaces()
"""
IN_AIRFLOW = """
import json, runpy, sys
from importlib.metadata import entry_points

plugins = entry_points(group="airflow.plugins", name="tidemark")
module = runpy.run_path(sys.argv[1])
dags = [name for name, value in module.items() if getattr(value, "dag_id", None) == name]
print(json.dumps({"plugins": [plugin.load().name for plugin in plugins], "dags": dags}))
"""
AVRO = """
pipeline: prices
source: {kafka: {connection: kafka_default, topics: [prices]}}
decode: {format: avro, schema: prices.avsc}
event_time: {on_invalid: source_timestamp}
sinks:
  - files: {root: lake, format: avro}
"""
PLAIN = """
pipeline: prices
source: {kafka: {connection: kafka_default, topics: [prices]}}
decode: {format: json, schema: id BIGINT NOT NULL}
event_time: {on_invalid: source_timestamp}
"""
EXTRA_OF_EXAMPLES = {
    "azure.yaml": "azure",
    "delta.yaml": "delta",
    "iceberg.yaml": "iceberg",
    "order_changes_in_a_lake.yaml": "iceberg",
    "orders-avro.yaml": "avro",
    "orders-glue.yaml": "avro",
    "orders_to_topic.yaml": "topic",
    "protobuf.yaml": "protobuf",
}
NEEDS_EXTRA = {
    "avro": "sinks: [{files: {root: lake, format: avro}}]\n",
    "azure": "sinks: [{files: {root: 'abfss://lake@account.dfs.core.windows.net/prices'}}]\n",
    "connect": "spark: {engine: connect}\nsinks: [{files: {root: lake}}]\n",
    "delta": "sinks: [{delta: {location: prices}}]\n",
    "hive": "sinks: [{iceberg: {catalog: hive, connection: hive, table: a.prices, warehouse: w}}]\n",
    "iceberg": "sinks: [{iceberg: {connection: catalog, table: a.prices, warehouse: w}}]\n",
    "topic": "sinks: [{topic: {connection: kafka_default, topic: copies}}]\n",
}

pytestmark = pytest.mark.timeout(600)


def run(*words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run([*map(str, words)], env=env, cwd=cwd, text=True, capture_output=True)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: building leaves folders beside the source."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(PACKAGE, source / "include" / "tidemark", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    return built_wheel(source, folder)


def built_wheel(source: Path, folder: Path) -> Path:
    words = ("--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder)
    run(*UV, "--offline", "build", *words, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Callable[[str], Path]:
    """Of an extra, or "" for none: the folder of programs of an environment with the wheel, without the checkout."""
    return cache(lambda extra: install(wheel, extra))


def install(wheel: Path, extra: str, name: str = "") -> Path:
    """Into an environment that was empty: the wheel and all that it asks for, from the package index.

    The versions are those of the lock. PySpark alone is linked from the environment of the checkout: the index has it
    as source, and making a wheel of 434 MB takes a minute. What it brings is installed as the rest.
    """
    folder = wheel.parent / (name or extra or "plain")
    run(*UV, "venv", "--python", sys.executable, folder)
    asked = [name for name in declared(extra) if bare(name) in PYSPARK]
    constraints, overrides = folder / "constraints.txt", folder / "overrides.txt"
    constraints.write_text(re.sub(r" \\\n.*--hash=\S+", "", (CHECKOUT / "requirements" / "tidemark.lock").read_text()))
    overrides.write_text("".join(f'{name} ; python_version < "3"\n' for name in PYSPARK))
    words = [*UV, "pip", "install", "--python", folder / "bin" / "python", "--constraint", constraints]
    words += ["--override", overrides, f"{wheel}[{extra}]", *sorted({*chain(*map(brought_by, asked))})]
    if subprocess.run([*map(str, words), "--offline"], capture_output=True).returncode != 0:
        run(*words)  # what the cache does not have yet
    [packages] = folder.glob("lib/python*/site-packages")
    locked = next(Path(path) for path in sys.path if Path(path, "pyspark").is_dir())
    for pattern in {"pyspark", *(f"{bare(name).replace('-', '_')}-*.dist-info" for name in asked)}:
        [linked] = locked.glob(pattern)
        (packages / linked.name).symlink_to(linked)
    return folder / "bin"


def outside() -> dict[str, str]:
    """The environment of this process, without what leads Python to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "TIDEMARK"))}


def environment(world: World, folder: Path) -> dict[str, str]:
    """What a user exports: no folder of Python's, and pipelines in the present folder."""
    inherited = {
        name: value for name, value in world.environment().items() if not name.startswith(("PYTHON", "PYSPARK"))
    }
    return {**inherited, "TIDEMARK_PIPELINES": ".", "TIDEMARK_HOME": ".", "AIRFLOW_HOME": str(folder / "airflow")}


def test_the_wheel_holds_every_file_of_the_package_and_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if name.startswith("tidemark/")}
        licenses = [name for name in opened.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    there = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert names == {path.relative_to(PACKAGE.parent).as_posix() for path in there}
    assert {".py", ".sql"} <= {Path(name).suffix for name in names}
    assert {"tidemark/py.typed", "tidemark/operations/project/dags/tidemark_dags.py.txt"} <= names
    assert len(licenses) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("extra", ["", *MODULES_OF_EXTRAS])
def test_an_empty_environment_can_import_every_module_that_its_extra_is_for(
    installed: Callable[[str], Path], extra: str, tmp_path: Path
) -> None:
    room = "iceberg" if extra == "hive" else extra
    modules = [path for path in MODULES if path.stem != "__main__" and of_extra(short(path)) == room]
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in modules]
    env = {**outside(), "AIRFLOW_HOME": str(tmp_path)}
    absent = run(installed(extra) / "python", "-c", IMPORTED, *names, env=env, cwd=tmp_path)
    assert modules
    assert json.loads(absent.splitlines()[-1]) == {}


@pytest.mark.parametrize("extra", ["", "iceberg"])
def test_an_installed_wheel_validates_the_examples_and_says_what_to_install(
    installed: Callable[[str], Path], extra: str, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    words = [installed(extra) / "tidemark", "validate", *sorted(tmp_path.glob("*.yaml"))]
    done = subprocess.run([*map(str, words)], env=outside(), cwd=tmp_path, text=True, capture_output=True)
    refused = dict(re.findall(r'([^/]+\.yaml):.* install it: pip install "tidemark\[(\w+)\]"', done.stderr))
    assert refused == {file: needed for file, needed in EXTRA_OF_EXAMPLES.items() if needed != extra}
    assert done.returncode == 2


@pytest.mark.parametrize("extra", NEEDS_EXTRA)
def test_a_pipeline_that_needs_an_extra_is_right_with_it_and_without_it_is_told_what_to_install(
    installed: Callable[[str], Path], extra: str, tmp_path: Path
) -> None:
    (tmp_path / "prices.yaml").write_text(PLAIN + NEEDS_EXTRA[extra])

    def validated(programs: Path) -> subprocess.CompletedProcess[str]:
        words = [str(programs / "tidemark"), "validate", "prices.yaml"]
        return subprocess.run(words, env=outside(), cwd=tmp_path, text=True, capture_output=True)

    assert (done := validated(installed(extra))).returncode == 0, done.stderr
    refused = validated(installed(""))
    assert refused.returncode == 2
    first = "iceberg" if extra == "hive" else extra  # with that installed, the next thing that lacks is told
    assert f'install it: pip install "tidemark[{first}]"' in refused.stderr
    assert {*MODULES_OF_EXTRAS} - {*NEEDS_EXTRA} == {"airflow", "msk", "protobuf"}, "without a pipeline here"


def test_an_installed_wheel_does_sql_dedupe_protobuf_and_avro(installed: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    schema = {"type": "record", "name": "Price"}
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    (tmp_path / "prices.avsc").write_text(json.dumps({**schema, "fields": fields}))
    (tmp_path / "prices.yaml").write_text(AVRO)
    shutil.copy(CHECKOUT / "tests" / "worlds" / "done_in_process.py", tmp_path)
    files = ("orders_with_logic.yaml", "protobuf.yaml", "prices.yaml")
    env = {**outside(), "TIDEMARK_HOME": str(tmp_path)}
    printed = run(installed("topic") / "python", "done_in_process.py", *files, env=env, cwd=tmp_path)
    logic, protobuf, avro = map(json.loads, printed.splitlines())
    assert logic == {
        "pipeline": "orders_with_logic", "decoded": 5, "dead_lettered": 0, "filtered": 1, "deduplicated": 1, "rows": 3,
    }  # fmt: skip
    for other in (protobuf, avro):
        assert [other[key] for key in ("decoded", "dead_lettered", "rows")] == [5, 0, 5]


@pytest.mark.parametrize(("extra", "catalog"), [("iceberg", "sql"), ("iceberg", "rest"), ("hive", "hive")])
def test_an_installed_wheel_asks_a_catalog(
    installed: Callable[[str], Path], extra: str, catalog: str, tmp_path: Path
) -> None:
    """There is none at that port: only the client of that kind of catalog can tell."""
    done = subprocess.run(
        [installed(extra) / "python", "-c", ASKED, catalog], env=outside(), cwd=tmp_path, text=True, capture_output=True
    )
    assert done.returncode == 1
    assert "Unavailable: the catalog does not answer" in done.stderr


def test_an_installed_wheel_copies_a_topic_from_an_empty_folder(
    make_world: Callable[..., World], postgres: Postgres, installed: Callable[[str], Path], tmp_path: Path
) -> None:
    world = make_world()
    world.produce(60, bad_every=20)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(world.pipelines / "demo.yaml", folder)
    with postgres.temporary_database("wheel") as world.dsn:
        env = environment(world, folder)
        where = "import sys, tidemark; print(tidemark.__file__); print(*sys.path)"
        module, path = run(installed("") / "python", "-c", where, env=env, cwd=folder).splitlines()
        assert Path(module).is_relative_to(installed("").parent)
        assert not {str(CHECKOUT), str(PACKAGE.parent)} & set(path.split())
        run(installed("") / "tidemark", "db", "migrate", env=env, cwd=folder)
        run(installed("") / "tidemark", "run", "demo", "--master", "local[2]", env=env, cwd=folder)
        world.assert_complete()


def test_a_sink_of_ones_own_is_a_package_that_reaches_executors_which_do_not_have_it(
    make_world: Callable[..., World], postgres: Postgres, installed: Callable[[str], Path], wheel: Path, tmp_path: Path
) -> None:
    shutil.copytree(CHECKOUT / "examples" / "provider", tmp_path / "source")
    toy = built_wheel(tmp_path / "source", tmp_path)
    programs = install(wheel, "", name="with toy")
    run(*UV, "pip", "install", "--offline", "--no-deps", "--python", programs / "python", toy)
    world = make_world(settings={"sinks": [{"toy": {"folder": str(tmp_path / "toys")}}]})
    world.produce(60, bad_every=20)
    with postgres.temporary_database("toys") as world.dsn:
        env = {**environment(world, tmp_path), "PYSPARK_PYTHON": str(installed("") / "python")}
        run(programs / "tidemark", "db", "migrate", env=env, cwd=world.pipelines)
        run(programs / "tidemark", "run", "demo", "--master", "local-cluster[1,1,1024]", env=env, cwd=world.pipelines)
        records = (tmp_path / "toys" / "_manifests" / "demo").glob("*.json")
        assert sum(part["rows"] for record in records for part in json.loads(record.read_text())["objects"]) == 60
        words = [str(programs / "tidemark"), "doctor", "--json"]
        findings = subprocess.run(words, env=env, cwd=world.pipelines, text=True, capture_output=True).stdout
        assert "tidemark-toy 1.0 brings: sink toy" in [finding["message"] for finding in json.loads(findings)]
        words = [str(installed("") / "tidemark"), "validate"]
        refused = subprocess.run(words, env=env, cwd=world.pipelines, text=True, capture_output=True)
        assert (refused.returncode, "sinks[0].toy: unknown key" in refused.stderr) == (2, True)


def test_spark_submit_does_an_order_with_the_application_of_the_wheel(
    make_world: Callable[..., World], installed: Callable[[str], Path], tmp_path: Path
) -> None:
    world = make_world()
    world.produce(20, bad_every=9)
    [manifest] = world.json("plan", "demo")["manifests"]
    [application] = installed("").parent.glob("lib/python*/site-packages/tidemark/spark/application.py")

    def stage(order: Order) -> Receipt:
        folder = write_order(order, LocalStore(str(world.folder)))
        settings = {
            **spark_configuration(world.spark_jars),
            "spark.pyspark.driver.python": str(installed("") / "python"),
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        env = {**environment(world, tmp_path), "PYSPARK_PYTHON": str(installed("") / "python")}
        submit = Path(sys.executable).with_name("spark-submit")
        run(submit, "--master", "local[2]", *words, application, folder.address, env=env, cwd=tmp_path)
        return read_receipt(folder, order)

    process(world.context(), manifest, stage)
    world.assert_readers_complete()


def test_airflow_submits_the_application_of_the_wheel(installed: Callable[[str], Path], tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["AIRFLOW_HOME"] = str(tmp_path)
    where = "from tidemark.airflow.process import APPLICATION; print(APPLICATION)"
    application = Path(run(installed("airflow") / "python", "-c", where, env=env, cwd=tmp_path).splitlines()[-1])
    assert application.is_relative_to(installed("airflow").parent)
    done = subprocess.run(
        [installed("airflow") / "python", application], env=env, cwd=tmp_path, text=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (2, "usage: spark-submit application.py ADDRESS/order.json [CONNECTION]\n")


def test_airflow_has_plugin_and_dag_of_a_project_that_the_wheel_makes(
    installed: Callable[[str], Path], tmp_path: Path
) -> None:
    run(installed("airflow") / "tidemark", "init", "shop", env=outside(), cwd=tmp_path)
    shop = tmp_path / "shop"
    env = {**outside(), "AIRFLOW_HOME": str(tmp_path / "airflow"), "TIDEMARK_HOME": str(tmp_path / "data")}
    env["TIDEMARK_PIPELINES"] = str(shop / "pipelines")
    assert "orders.yaml: ok" in run(installed("airflow") / "tidemark", "validate", env=env, cwd=shop)
    file = shop / "dags" / "tidemark_dags.py"
    printed = run(installed("airflow") / "python", "-c", IN_AIRFLOW, file, env=env, cwd=tmp_path)
    assert json.loads(printed.splitlines()[-1]) == {"plugins": ["tidemark"], "dags": ["orders"]}


def test_no_module_beside_the_application_has_the_name_of_one_of_pythons() -> None:
    """Python looks for every import in the application's own folder first."""
    names = {path.stem for path in (PACKAGE / "spark").iterdir()}
    assert names & sys.stdlib_module_names == set()
