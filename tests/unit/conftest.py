"""Unit tests start no service and import neither Spark nor Airflow, so that all of them take less than a minute."""

import sys
from collections.abc import Iterator

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
