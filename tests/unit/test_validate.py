"""`tidemark validate` on folders that hold something else than pipeline files."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.pipeline_text import GOOD, changed
from tidemark.cli.main import main


def validate(folder: Path) -> Result:
    return CliRunner().invoke(main, ["--pipelines", str(folder), "validate"])


def test_a_folder_without_pipeline_files_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("not a pipeline")
    result = validate(tmp_path)
    assert result.exit_code == 2
    assert "there are no pipeline files (*.yaml, *.yml) in" in result.stderr


@pytest.mark.parametrize(("kind", "said"), [("folder", "is not a file"), ("dangling link", "does not exist")])
def test_what_is_called_a_pipeline_file_and_is_none_is_named(tmp_path: Path, kind: str, said: str) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    if kind == "folder":
        (tmp_path / "x.yaml").mkdir()
    else:
        (tmp_path / "x.yaml").symlink_to(tmp_path / "gone")
    result = validate(tmp_path)
    assert result.exit_code == 2
    assert f"x.yaml: {said}" in result.stderr
    assert "good.yaml: ok" in result.stdout


@pytest.mark.parametrize("root", ["/", "//", ".", "../.."])
def test_a_root_that_is_everybodys_folder_is_refused(tmp_path: Path, root: str) -> None:
    (tmp_path / "p.yaml").write_text(changed(("root: lake", f"root: {root}")))
    assert "must be a folder of its own" in validate(tmp_path).stderr
