"""Tidemark as a user installs it: a wheel, in an environment that has never seen this checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.bootstrap.install import TOOLS
from sandbox.services.postgres import Postgres
from tests.worlds.world import World
from tidemark.lifecycle.attempt import process
from tidemark.order import Order
from tidemark.receipt import Receipt
from tidemark.spark.session import spark_configuration
from tidemark.spark.submitted import read_receipt, write_order

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
UV = [str(TOOLS / "bin" / "uv"), "--quiet", "--offline", "--no-config"]

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
    run(*UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder of programs of an environment with the wheel and the locked packages, without the checkout.

    Of a folder that a .pth file names, Python reads no further .pth file: so the one that names the checkout is unread.
    """
    environment = wheel.parent / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    [packages] = environment.glob("lib/python*/site-packages")
    locked = next(path for path in sys.path if Path(path, "pyspark").is_dir())
    (packages / "locked.pth").write_text(f"{locked}\n")
    run(*UV, "pip", "install", "--no-deps", "--python", environment / "bin" / "python", wheel)
    return environment / "bin"


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
    assert "tidemark/py.typed" in names
    assert len(licenses) == 1


def test_an_installed_wheel_copies_a_topic_from_an_empty_folder(
    make_world: Callable[..., World], postgres: Postgres, installed: Path, tmp_path: Path
) -> None:
    world = make_world()
    world.produce(60, bad_every=20)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(world.pipelines / "demo.yaml", folder)
    with postgres.temporary_database("wheel") as world.dsn:
        env = environment(world, folder)
        where = "import sys, tidemark; print(tidemark.__file__); print(*sys.path)"
        module, path = run(installed / "python", "-c", where, env=env, cwd=folder).splitlines()
        assert Path(module).is_relative_to(installed.parent)
        assert not {str(CHECKOUT), str(PACKAGE.parent)} & set(path.split())
        run(installed / "tidemark", "migrate", env=env, cwd=folder)
        run(installed / "tidemark", "run", "demo", "--master", "local[2]", env=env, cwd=folder)
        world.assert_complete()


def test_spark_submit_does_an_order_with_the_application_of_the_wheel(
    make_world: Callable[..., World], installed: Path, tmp_path: Path
) -> None:
    world = make_world()
    world.produce(20, bad_every=9)
    [manifest] = world.json("plan", "demo")["manifests"]
    [application] = installed.parent.glob("lib/python*/site-packages/tidemark/spark/application.py")

    def stage(order: Order) -> Receipt:
        file = write_order(order, world.folder)
        settings = {**spark_configuration(world.spark_jars), "spark.pyspark.driver.python": str(installed / "python")}
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        env = {**environment(world, tmp_path), "PYSPARK_PYTHON": str(installed / "python")}
        submit = Path(sys.executable).with_name("spark-submit")
        run(submit, "--master", "local[2]", *words, application, file, env=env, cwd=tmp_path)
        return read_receipt(file, order)

    process(world.context(), manifest, stage)
    world.assert_readers_complete()


def test_airflow_submits_the_application_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["AIRFLOW_HOME"] = str(tmp_path)
    where = "from tidemark.airflow.process import APPLICATION; print(APPLICATION)"
    application = Path(run(installed / "python", "-c", where, env=env, cwd=tmp_path).splitlines()[-1])
    assert application.is_relative_to(installed.parent)
    done = subprocess.run([installed / "python", application], env=env, cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (2, "usage: spark-submit application.py ORDER.json\n")


def test_no_module_beside_the_application_has_the_name_of_one_of_pythons() -> None:
    """Python looks for every import in the application's own folder first."""
    names = {path.stem for path in (PACKAGE / "spark").iterdir()}
    assert names & sys.stdlib_module_names == set()
