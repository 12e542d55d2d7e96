"""The zip that executors get: the same bytes from the same files, complete, and importable without an installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tidemark.spark import shipped
from tidemark.spark.masters import is_local
from tidemark.spark.shipped import package_zip
from tidemark.version import PACKAGE


@pytest.fixture(autouse=True)
def fresh() -> None:
    package_zip.cache_clear()


def names(archive: Path) -> list[str]:
    with ZipFile(archive) as opened:
        return opened.namelist()


def test_it_holds_every_module_and_data_file_and_nothing_compiled(tmp_path: Path) -> None:
    entries = names(package_zip(tmp_path))
    here = [path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()]
    assert sorted(entries) == sorted(name for name in here if not name.endswith(".pyc"))
    assert {"tidemark/database/queries.sql", "tidemark/spark/job.py", "tidemark/sinks/writers.py"} <= set(entries)


def test_the_same_files_make_the_same_bytes_wherever_and_whenever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = package_zip(tmp_path / "one")
    copy = tmp_path / "elsewhere" / "tidemark"
    shutil.copytree(PACKAGE, copy, copy_function=shutil.copyfile)  # another time, other permissions
    monkeypatch.setattr(shipped, "PACKAGE", copy)
    second = package_zip(tmp_path / "two")
    assert (second.name, second.read_bytes()) == (first.name, first.read_bytes())
    (copy / "layout.py").write_text("changed = True\n")
    package_zip.cache_clear()
    assert package_zip(tmp_path / "two").name != first.name
    assert second.exists(), "an application may be serving it"


def test_one_that_is_there_is_used_and_no_half_one_is_left(tmp_path: Path) -> None:
    made = package_zip(tmp_path)
    before = made.stat().st_mtime_ns
    package_zip.cache_clear()
    assert package_zip(tmp_path).stat().st_mtime_ns == before
    assert [file.name for file in made.parent.iterdir()] == [made.name]


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file, so nothing can be made below it")
    made = package_zip(home)
    assert made.is_file()
    assert not made.is_relative_to(home)


def test_what_executors_import_works_from_the_zip_alone_and_so_do_its_data_files(tmp_path: Path) -> None:
    program = (
        "import tidemark, tidemark.processing.processor, tidemark.providers.postgres.writer, tidemark.spark.probe\n"
        "from tidemark.text import named_queries\n"
        "assert named_queries('tidemark.providers.postgres', 'queries.sql')['fence']\n"
        "assert named_queries('tidemark.transforms.dedupe', 'queries.sql')['within']\n"
        "print(tidemark.__file__)\n"
    )
    made = package_zip(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(made), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(made))


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2,4]", True), ("local-cluster[2,1,1024]", False),
     ("spark://host:7077", False), ("yarn", False), ("k8s://https://host", False)],
)  # fmt: skip
def test_a_local_master_needs_nothing_sent(master: str, local: bool) -> None:
    assert is_local(master) is local
