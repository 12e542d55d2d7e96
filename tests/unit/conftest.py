"""Unit tests start no service and import neither Spark nor Airflow, so that all of them take less than a minute."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.services.processes import Child

HEAVY = ("airflow", "pyspark")


def heavy_imports() -> set[str]:
    """Those of ``HEAVY`` that this process has imported by now."""
    return {name for name in HEAVY if name in sys.modules}


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails the test that starts a service, or that is the first to import Spark or Airflow."""

    def refuse(child: Child, name: str, *_: object, **__: object) -> None:
        raise AssertionError(f"a unit test starts {name}: it belongs to another folder")

    before = heavy_imports()
    monkeypatch.setattr(Child, "__init__", refuse)
    yield
    assert heavy_imports() == before, "a unit test imports Spark or Airflow: it belongs to another folder"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of this test and gives its path; without a name, a pipeline file."""

    def file(text: str | bytes, name: str = "p.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return file
