"""The archive of Spark's classes is made beside the first run that wants it: once, and anew after a kill."""

import multiprocessing
from importlib.metadata import version
from pathlib import Path

import pytest

from sandbox.bootstrap import classes
from sandbox.bootstrap.install import Stamp

ARCHIVE = f"spark-classes-{version('pyspark')}-1-8.jsa"
# In place of `tidemark spark classes`: slow, and it tells that it was called.
PROGRAM = """#!/bin/sh
echo made >> "$TIDEMARK_SPARK_JARS/calls"
sleep 0.3
echo classes > "$TIDEMARK_SPARK_JARS/../ARCHIVE"
""".replace("ARCHIVE", ARCHIVE)


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program, jars = tmp_path / "bin" / "tidemark", tmp_path / "jars"
    for folder in (program.parent, jars / "spark"):
        folder.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    for name, value in {"STATE": tmp_path, "VENV": tmp_path, "JARS": jars, "STAMP": Stamp(jars / "stamp")}.items():
        monkeypatch.setattr(classes, name, value)
    return jars


def calls(jars: Path) -> int:
    return (jars / "spark" / "calls").read_text().count("made")


def test_of_two_that_want_it_at_once_one_makes_it_and_both_wait(jars: Path) -> None:
    both = [multiprocessing.get_context("fork").Process(target=classes.make) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
        assert each.exitcode == 0
        assert (jars / ARCHIVE).exists()
    assert calls(jars) == 1


def test_what_a_killed_one_left_is_removed_and_it_is_made_anew(jars: Path) -> None:
    left = jars / ARCHIVE.removesuffix(".jsa")
    left.mkdir()
    (left / "classes").write_text("half")
    classes.make()
    assert not left.exists()
    assert (jars / ARCHIVE).exists()


def test_where_java_makes_none_the_next_run_tries_again(jars: Path) -> None:
    program = jars.parent / "bin" / "tidemark"
    program.write_text(f'{PROGRAM}rm "$TIDEMARK_SPARK_JARS"/../*.jsa\nexit 1\n')
    for _ in range(2):
        classes.make()
    assert calls(jars) == 2
    program.write_text(PROGRAM)
    for _ in range(2):
        classes.make()
    assert calls(jars) == 3
