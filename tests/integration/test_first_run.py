"""The project of ``tidemark init``, from its README's first command to its last, on a real broker and database."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from click.testing import CliRunner

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tidemark.cli.main import main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert CliRunner().invoke(main, ["init", str(tmp_path / "shop")]).exit_code == 0
    return tmp_path / "shop"


def test_its_dag_files_give_the_dag_and_the_error_of_a_wrong_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(project / "pipelines"))
    monkeypatch.setenv("TIDEMARK_HOME", str(project / "data"))

    def read() -> tuple[list[str], list[str]]:
        """The ids of the DAGs, and the files with an import error."""
        bags = [
            BundleDagBag(str(file), bundle_path=project, bundle_name="shop") for file in (project / "dags").iterdir()
        ]
        dags = [dag_id for bag in bags for dag_id in bag.dag_ids]
        return dags, [file for bag in bags for file in bag.import_errors]

    assert read() == (["orders"], [])
    (project / "pipelines" / "new.yaml").write_text("pipeline: new")
    assert read() == (["orders"], ["dags/tidemark_pipeline_files.py"])


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_commands_of_its_readme_publish_the_records(
    project: Path, broker: Broker, postgres: Postgres, spark_jars: Path
) -> None:
    settings, shell, jars, run, results = re.findall(
        r"^```sh\n(.*?)^```", (project / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert "tidemark spark jars" in jars
    (project / "jars").mkdir()
    (project / "jars" / "spark").symlink_to(spark_jars)  # fetched once, by the set-up of this checkout
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK", "AIRFLOW"))}
    env = {**outside, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def type_in(commands: str) -> str:
        """All that is printed; each command must succeed."""
        done = subprocess.run(
            ["bash", "-c", f"set -e\n{commands}"], cwd=project, env=env, text=True, capture_output=True
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    type_in(settings)
    file = project / ".env"
    with postgres.temporary_database("first_run") as dsn:
        text = file.read_text()
        for example, real in (
            ("postgresql://user:password@localhost:5432/tidemark", dsn),
            ("localhost:9092", broker.bootstrap_servers),
        ):
            assert example in text
            text = text.replace(example, real)
        file.write_text(text)
        try:
            printed = type_in(f"{shell}{run}")
            assert "100 orders sent, 0 not sent" in printed
            assert "orders.yaml: ok" in printed
            assert "published: read 100, written 100, dead-lettered 0" in printed
            answers = type_in(f"{shell}{results}")
        finally:
            broker.delete_topic("orders")
    assert f"{project}/data/lake/raw/orders/" in answers
    assert "1 of 1 manifest done, 100 rows; 0 differences" in answers
    assert "orders: ok; published up to " in answers
