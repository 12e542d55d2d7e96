"""What becomes of a DAG when its pipeline file is broken, copied, renamed, emptied or deleted."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.pipeline_text import changed
from tidemark.errors import ConfigurationError, NotFound
from tidemark.pipeline.deployed import (
    Deployed,
    deployed,
    deployed_named,
    files_of,
    known_file,
    known_files,
    refuse_wrong_files,
)
from tidemark.pipeline.loader import find
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline

Write = Callable[..., Path]
SCHEDULED = changed(("pipeline: flights", "pipeline: flights\nschedule: '@hourly'\ndescription: ${WHAT:-as it was}"))


class Folder:
    """A folder of pipelines, read as Airflow reads it: all of it for the DAG processor, one name for a task."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.env = {"TIDEMARK_HOME": str(home)}
        self.kept = home / "_pipelines"

    def read(self) -> dict[str, tuple[Pipeline, ConfigurationError | None]]:
        pipelines = {each.pipeline.name: (each.pipeline, each.problem) for each in deployed(self.path, self.env)}
        for name in pipelines:
            own = deployed_named(self.path, name, self.env)
            assert (own.pipeline, str(own.problem)) == (pipelines[name][0], str(pipelines[name][1]))
        return pipelines

    def import_error(self) -> str:
        try:
            refuse_wrong_files(self.path, self.env)
        except ConfigurationError as error:
            return str(error).replace(f"{self.path}/", "")
        return ""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """With one right file, ``p.yaml`` of the pipeline flights, that has been read."""
    path = tmp_path / "pipelines"
    path.mkdir()
    folder = Folder(path, tmp_path / "home")
    (path / "p.yaml").write_text(SCHEDULED)
    assert {name: problem for name, (_, problem) in folder.read().items()} == {"flights": None}
    assert folder.import_error() == ""
    return folder


def delete(file: Path) -> None:
    file.unlink()


def rename_pipeline(file: Path) -> None:
    file.write_text(SCHEDULED.replace("pipeline: flights", "pipeline: fligths"))


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "a typo": (lambda file: file.write_text(SCHEDULED.replace("topics:", "topcs:")), "p.yaml:7: source.kafka.topcs: "),
    "no YAML": (lambda file: file.write_text("pipeline: [flights"), "p.yaml:1: is not YAML"),
    "no text": (lambda file: file.write_bytes(b"\xff\xfe"), "p.yaml: is not UTF-8 text"),
    "emptied": (lambda file: file.write_text(""), "p.yaml: is empty; begin with pipeline: NAME"),
    "deleted": (delete, "p.yaml: does not exist any more; put it back, or, to remove pipeline flights: rm "),
    "the pipeline's name": (rename_pipeline, 'p.yaml: pipeline: was "flights" before; set it back, or, '),
}


@pytest.mark.parametrize(("make_wrong", "message"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_file_takes_nothing_of_its_dag_away_and_a_right_one_heals_it(
    folder: Folder, make_wrong: Callable[[Path], object], message: str
) -> None:
    before, _ = folder.read()["flights"]
    make_wrong(folder.path / "p.yaml")
    after, problem = folder.read()["flights"]
    assert after == before, "schedule, description, source, sinks: all as they were"
    assert isinstance(problem, InvalidPipelines)
    assert message in str(problem)
    assert message in folder.import_error()
    assert "check again with: tidemark validate" in folder.import_error()

    (folder.path / "p.yaml").write_text(SCHEDULED.replace("@hourly", "@daily"))
    for name in set(folder.read()) - {"flights"}:
        (folder.kept / f"{name}.json").unlink()
    healed, problem = folder.read()["flights"]
    assert (healed.schedule, problem, folder.import_error()) == ("@daily", None, "")


@pytest.mark.parametrize("copy", ["a.yaml", "z.yaml"])
def test_a_copy_with_the_same_name_gets_the_error_and_the_first_known_file_keeps_the_dag(
    folder: Folder, copy: str
) -> None:
    (folder.path / copy).write_text(SCHEDULED.replace("@hourly", "@daily"))
    pipeline, problem = folder.read()["flights"]
    assert (pipeline.schedule, problem) == ("@hourly", None)
    error = f'{copy}:1: pipeline: is "flights", as in p.yaml; no two pipelines share a name'
    assert folder.import_error().startswith(error)
    assert find(folder.path, "flights", folder.env).schedule == "@hourly", "commands go on, too"

    (folder.path / "p.yaml").write_text("pipeline: flights\nsorce: 1")
    pipeline, problem = folder.read()["flights"]
    assert (pipeline.schedule, str(problem).count("p.yaml:2: sorce")) == ("@hourly", 1), "a copy takes over nothing"
    assert copy not in str(problem)
    assert error in folder.import_error()
    with pytest.raises(InvalidPipelines, match="sorce"):
        find(folder.path, "flights", folder.env)


def test_a_file_under_another_name_goes_on_with_the_dag(folder: Folder) -> None:
    (folder.path / "p.yaml").rename(folder.path / "other.yml")
    assert folder.read()["flights"][1] is None
    assert folder.import_error() == ""
    (folder.path / "other.yml").write_text("")
    assert "other.yml: is empty" in str(folder.read()["flights"][1]), "it is the known file now"


def test_a_pipeline_that_is_given_up_has_no_dag_and_no_error_any_more(folder: Folder) -> None:
    (folder.path / "p.yaml").unlink()
    command = folder.import_error().partition("to remove pipeline flights: ")[2].partition("\n")[0]
    assert os.system(command) == 0  # the command as it is printed
    assert folder.read() == {}
    assert folder.import_error() == ""
    with pytest.raises(NotFound):
        deployed_named(folder.path, "flights", folder.env)


def test_a_folder_that_is_gone_takes_no_dag_away(folder: Folder) -> None:
    folder.path.rename(folder.path.with_name("elsewhere"))
    pipeline, problem = folder.read()["flights"]
    assert (pipeline.schedule, str(problem)) == ("@hourly", folder.import_error())
    assert "there is no folder of pipelines" in folder.import_error()


def test_the_last_right_schema_is_kept_with_the_file(folder: Folder) -> None:
    schema = folder.path / "flights.json"
    schema.write_text('{"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}')
    (folder.path / "p.yaml").write_text(
        SCHEDULED.replace("id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN", "flights.json")
    )
    before, problem = folder.read()["flights"]
    assert problem is None
    schema.write_text('{"type": "object"')
    after, problem = folder.read()["flights"]
    assert after == before
    assert "names a file that is not JSON" in str(problem)


def test_a_new_file_that_was_never_right_is_an_error_and_no_dag(folder: Folder) -> None:
    (folder.path / "new.yaml").write_text("pipeline: new\n")
    assert list(folder.read()) == ["flights"]
    assert folder.import_error().startswith("new.yaml:1: source: is missing")
    with pytest.raises(InvalidPipelines, match=r"new\.yaml"):
        deployed_named(folder.path, "new", folder.env)


def test_one_and_all_are_told_alike_and_no_file_is_charged_to_a_pipeline_that_it_does_not_name(folder: Folder) -> None:
    (folder.path / "other.yaml").write_text("pipeline: other\nsinkz: 1\n")
    planned = ["flights", "gone", "other"]
    for text in (SCHEDULED, "", None):
        if text is None:
            (folder.path / "p.yaml").unlink()
        else:
            (folder.path / "p.yaml").write_text(text)
        known = known_files(folder.path, planned, folder.env)
        assert sorted(known) == planned
        assert isinstance(known["flights"], Deployed)
        assert (known["flights"].problem is None) == (text == SCHEDULED)
        assert known["gone"] is None
        assert "sinkz" in str(known["other"])
        for name in planned:
            assert str(known_file(folder.path, name, folder.env)) == str(known[name])
    assert sorted(known_files(folder.path, [], folder.env)) == ["flights", "other.yaml"]


def test_no_value_of_a_variable_is_kept(folder: Folder) -> None:
    folder.env["WHAT"] = "hunter2"
    assert folder.read()["flights"][0].description == "hunter2"
    assert "hunter2" not in (folder.kept / "flights.json").read_text()


def test_files_of_another_folder_are_not_missed(folder: Folder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert deployed(other, folder.env) == []
    refuse_wrong_files(other, folder.env)


def test_two_folders_with_a_pipeline_of_one_name_keep_each_its_own(folder: Folder, tmp_path: Path) -> None:
    other = Folder(tmp_path / "other", folder.kept.parent)
    other.path.mkdir()
    (other.path / "p.yaml").write_text(SCHEDULED.replace("@hourly", "@daily"))
    for _ in range(2):
        assert other.read()["flights"][0].schedule == "@daily"
        assert folder.read()["flights"][0].schedule == "@hourly"
    own = [folder.path / "p.yaml", folder.kept / "flights.json"]
    assert files_of(folder.path, "flights", folder.env) == own

    for each in (folder, other):
        (each.path / "p.yaml").write_text("pipeline: flights\nsource: [")
    for each, schedule in ((folder, "@hourly"), (other, "@daily"), (folder, "@hourly")):
        [(pipeline, problem)] = each.read().values()
        assert (pipeline.schedule, problem is not None) == (schedule, True)

    (other.path / "p.yaml").unlink()
    [(_, problem)] = other.read().values()
    [given_up] = [path for path in folder.kept.iterdir() if str(path) in str(problem)]
    given_up.unlink()
    assert (other.read(), list(folder.read())) == ({}, ["flights"]), "the message names the right one"


def test_a_folder_that_was_read_by_another_path_has_what_is_kept_by_that(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.path)
    kept = folder.kept / "flights.json"
    assert files_of(tmp_path / "link", "flights", folder.env) == [tmp_path / "link" / "p.yaml", kept]
    other = tmp_path / "other"
    other.mkdir()
    assert files_of(other, "flights", folder.env) == []
    folder.path.rename(tmp_path / "of another machine")
    assert files_of(other, "flights", folder.env) == [kept]


def test_what_is_kept_of_a_folder_that_is_not_there_is_not_replaced(folder: Folder, tmp_path: Path) -> None:
    gone = folder.path.rename(tmp_path / "gone")
    other = Folder(tmp_path / "other", folder.kept.parent)
    other.path.mkdir()
    (other.path / "p.yaml").write_text(SCHEDULED.replace("@hourly", "@daily"))
    assert list(other.read()) == ["flights"]
    assert [each.pipeline.schedule for each in deployed(folder.path, folder.env)] == ["@hourly"]
    gone.rename(folder.path)
    assert folder.read()["flights"][1] is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pipeline": 1'])
def test_what_cannot_be_read_of_the_kept_files_is_written_again(folder: Folder, content: str) -> None:
    kept = folder.kept / "flights.json"
    kept.write_text(content)
    assert folder.read()["flights"][1] is None
    (folder.path / "p.yaml").write_text("")
    assert folder.read()["flights"][0].schedule == "@hourly"


def test_a_home_that_cannot_be_written_is_told_and_stops_nothing(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.env["TIDEMARK_HOME"] = str(folder.path / "p.yaml")  # a file
    assert folder.read()["flights"][1] is None
    assert "a mistake in it will remove the DAG of pipeline flights" in caplog.text


def test_a_task_reads_no_file_but_the_one_that_had_its_pipeline_when_it_was_last_right(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.yaml", "z.yaml"):
        (folder.path / name).write_text(SCHEDULED.replace("pipeline: flights", "pipeline: flights-2"))
    read = []

    def text_of(file: Path) -> str:
        read.append(file.name)
        return file.read_text()

    monkeypatch.setattr("tidemark.pipeline.loader._text", text_of)
    assert deployed_named(folder.path, "flights", folder.env).pipeline.name == "flights"
    assert read == ["p.yaml"]

    (folder.path / "p.yaml").rename(folder.path / "q.yaml")
    assert deployed_named(folder.path, "flights", folder.env).pipeline.name == "flights"
    assert {*read} == {"a.yaml", "p.yaml", "q.yaml", "z.yaml"}, "all are searched for the name"
