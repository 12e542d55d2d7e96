"""`tidemark validate` on folders that hold something else than pipeline files."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.unit.pipeline_text import GOOD, changed
from tidemark.cli.main import main


def validate(folder: Path, *names: str) -> Result:
    return CliRunner().invoke(main, ["--pipelines", str(folder), "validate", *names])


def test_a_folder_without_pipeline_files_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("not a pipeline")
    result = validate(tmp_path)
    assert result.exit_code == 2
    assert "there are no pipeline files (*.yaml, *.yml) in" in result.stderr


@pytest.mark.parametrize(("kind", "message"), [("folder", "is not a file"), ("dangling link", "does not exist")])
def test_what_is_called_a_pipeline_file_and_is_none_is_named(tmp_path: Path, kind: str, message: str) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    if kind == "folder":
        (tmp_path / "x.yaml").mkdir()
    else:
        (tmp_path / "x.yaml").symlink_to(tmp_path / "gone")
    result = validate(tmp_path)
    assert result.exit_code == 2
    assert f"x.yaml: {message}" in result.stderr
    assert "good.yaml: ok" in result.stdout


def test_a_file_is_named_by_its_path_or_by_its_pipeline(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(changed(("pipeline: flights", "pipeline: other"), ("root: lake", "root: 7")))
    for name in ("flights", str(tmp_path / "a.yaml")):
        assert validate(tmp_path, name).stdout == f"{tmp_path / 'a.yaml'}: ok\n"
    wrong = validate(tmp_path, "other")
    assert (wrong.exit_code, "b.yaml" in wrong.stderr) == (2, True)
    (tmp_path / "b.yaml").unlink()
    unknown = validate(tmp_path, "flight")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert f'there is no pipeline flight in {tmp_path}; did you mean "flights"?' in unknown.stderr


def test_a_file_is_named_by_its_pipeline_however_it_writes_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(json.dumps(yaml.safe_load(GOOD)))
    assert validate(tmp_path, "flights").stdout == f"{tmp_path / 'a.yaml'}: ok\n"


def test_two_files_of_one_pipeline_are_as_wrong_when_it_is_named_as_without_a_name(tmp_path: Path) -> None:
    for file in ("a.yaml", "b.yaml"):
        (tmp_path / file).write_text(changed(("root: lake", f"root: {file}")))
    every, named = validate(tmp_path), validate(tmp_path, "flights")
    assert (named.exit_code, named.stdout, named.stderr) == (every.exit_code, every.stdout, every.stderr)
    assert "no two pipelines share a name" in named.stderr


@pytest.mark.parametrize("root", ["/", "//", ".", "../.."])
def test_a_root_that_is_everybodys_folder_is_refused(tmp_path: Path, root: str) -> None:
    (tmp_path / "p.yaml").write_text(changed(("root: lake", f"root: {root}")))
    assert "must be a folder of its own" in validate(tmp_path).stderr


def again(*changes: tuple[str, str]) -> str:
    """A second pipeline of the same topic."""
    return changed(("pipeline: flights", "pipeline: again"), *changes)


@pytest.mark.parametrize(
    ("second", "warned"),
    [
        (again(), True),
        (again(("root: lake", "root: lake/raw\n      layout: '{stream}/%Y/%m'")), True),
        (again(("root: lake", "root: lake\n      shared_with: [flights]")), False),
        (again(("root: lake", "root: lake\n      shared_with: [others]")), True),
        (again(("root: lake", "root: lake\n      success_files: true")), True),
        (again(("root: lake", "root: other")), False),
        (again(("root: lake", "root: lake\n      layout: '{pipeline}/{stream}'")), False),
        (again(("topics: [flights]", "topics: [trains]")), False),
    ],
)
def test_schedule_15_two_pipelines_of_one_topic_in_the_same_folders_are_warned_of(
    tmp_path: Path, second: str, warned: bool
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(second)
    result = validate(tmp_path)
    printed = " ".join(result.stderr.split())
    assert result.exit_code == 0
    assert ("where pipeline flights writes it too" in printed) == warned
    assert ("shared_with: [flights]" in printed) == (warned and "success_files" not in second)
    as_json = CliRunner().invoke(main, ["--pipelines", str(tmp_path), "validate", "--json"])
    is_nested = "root: lake/raw" in second
    assert ("one lies in the other" in printed) == is_nested
    assert [len(file["warnings"]) for file in json.loads(as_json.stdout)] == [warned + is_nested] * 2


def group(*changes: tuple[str, str]) -> str:
    return changed(("pipeline: flights", "pipeline: group\neach_topic: true"), *changes)


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (group(), True),
        (group(("topics: [flights]", "topics_regex: fli.*")), True),
        (group(("topics: [flights]", "topics_regex: tra.*")), False),
        (group(("each_topic: true", "each_topic: {flights: false}"), ("topics: [flights]", "topics_regex: .*")), False),
        (group(("root: lake", "root: other")), False),
    ],
)
def test_a_topic_that_a_group_and_a_pipeline_write_to_the_same_folders_is_warned_of_with_the_way_in(
    tmp_path: Path, text: str, warned: bool
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(text)
    result = validate(tmp_path)
    printed = " ".join(result.stderr.split())
    assert result.exit_code == 0, printed
    assert ("where pipeline group.flights writes it too" in printed) == warned
    assert ("tidemark rename pipeline flights group.flights --why TEXT" in printed) == warned


def test_folders_and_circles_of_groups_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(group(("topics: [flights]", "topics: [trains]"), ("root: lake", "root: lake/raw")))
    result = validate(tmp_path)
    assert result.exit_code == 0
    assert "one lies in the other" in " ".join(result.stderr.split())
