"""``tidemark init``: what it makes, that it makes it once, and that it overwrites nothing."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sandbox.bootstrap.checkout import CHECKOUT
from tidemark.cli.main import main
from tidemark.operations.new_project import FILES, files_of, providers_with_projects

PROVIDERS = [None, *providers_with_projects()]


def init(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["init", str(folder), *words])


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "shop"
    assert init(folder).exit_code == 0
    return folder


@pytest.fixture(params=PROVIDERS, ids=str)
def each_project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The project of a first run, and that of each provider that brings one."""
    folder = tmp_path / "each"
    assert init(folder, *(("--from", request.param) if request.param else ())).exit_code == 0
    assert set(contents(folder)) == set(files_of(request.param))
    return folder


def test_it_makes_every_file_and_says_what_is_next(tmp_path: Path) -> None:
    done = init(tmp_path / "shop")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"made {tmp_path}/shop/{name}" for name in FILES]
    assert done.stderr == f"next: the commands of {tmp_path}/shop/README.md\n"
    assert set(contents(tmp_path / "shop")) == set(FILES)


def test_its_pipeline_is_valid_and_needs_nothing_else(each_project: Path) -> None:
    done = CliRunner().invoke(main, ["validate", "--pipelines", str(each_project / "pipelines"), "--json"])
    assert done.exit_code == 0, done.stderr
    [file] = json.loads(done.stdout)
    assert (file["error"], file["warnings"]) == (None, [])


def test_its_dag_files_are_those_of_the_checkout(each_project: Path) -> None:
    dags = {path.name: path.read_bytes() for path in (CHECKOUT / "dags").glob("*.py")}
    assert contents(each_project / "dags") == dags


def test_its_readme_names_the_files_that_there_are(each_project: Path) -> None:
    text = (each_project / "README.md").read_text()
    named = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert sorted([*named, "README.md", ".gitignore"]) == sorted(contents(each_project))


def test_its_settings_are_kept_out_of_git_and_name_the_folders_of_the_project(each_project: Path) -> None:
    assert ".env" in (each_project / ".gitignore").read_text().splitlines()
    exported = re.findall(r"^export (\w+)=", (each_project / "env.example").read_text(), re.MULTILINE)
    assert {
        "TIDEMARK_DB",
        "AIRFLOW_CONN_KAFKA_DEFAULT",
        "TIDEMARK_PIPELINES",
        "TIDEMARK_HOME",
        "TIDEMARK_SPARK_JARS",
    } <= set(exported)


def test_a_second_time_does_nothing_and_says_so(project: Path) -> None:
    before = contents(project)
    done = init(project)
    assert (done.exit_code, done.stdout) == (0, f"nothing to do: all of the project is in {project}\n")
    assert contents(project) == before


def test_it_makes_what_is_missing_beside_files_of_ones_own(project: Path) -> None:
    (project / "pipelines" / "orders.yaml").unlink()
    (project / "pipelines" / "mine.yaml").write_text("mine")
    done = init(project, "--json")
    assert json.loads(done.stdout) == {
        "folder": str(project),
        "made": ["pipelines/orders.yaml"],
        "unchanged": [name for name in FILES if name != "pipelines/orders.yaml"],
        "dry_run": False,
    }
    assert (project / "pipelines" / "mine.yaml").read_text() == "mine"


def test_a_file_with_another_content_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "tidemark_dags.py").write_text("mine")
    (tmp_path / "README.md").write_text("")
    before = contents(tmp_path)
    done = init(tmp_path)
    assert done.exit_code == 2
    assert f"{tmp_path}/README.md, {tmp_path}/dags/tidemark_dags.py would be overwritten" in done.stderr
    assert "nothing was written" in done.stderr
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["README.md", "pipelines"])
def test_what_is_no_file_where_one_would_be_is_as_one_with_another_content(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("nowhere") if name == "README.md" else (tmp_path / name).write_text("a file")
    before = contents(tmp_path)
    done = init(tmp_path)
    assert done.exit_code == 2
    assert f"{tmp_path}/{name}" in done.stderr
    assert contents(tmp_path) == before


def test_a_folder_that_is_a_file_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("a file")
    assert init(tmp_path / "shop").exit_code == 2
    done = init(tmp_path / "shop" / "below")
    assert (done.exit_code, "Traceback" in done.output) == (2, False)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = init(tmp_path / "shop", "--dry-run")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"would make {tmp_path}/shop/{name}" for name in FILES]
    assert done.stderr == "nothing was written (dry run)\n"
    assert not (tmp_path / "shop").exists()
