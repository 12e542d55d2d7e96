"""Which manifests of a bundle are begun, and what is raised in the end; without a service."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_bundles import manifest
from tidemark.airflow.process import ProcessManifestOperator
from tidemark.errors import TidemarkError, Unavailable, WorkFailed
from tidemark.model.manifest import Manifest
from tidemark.pipeline.loader import load

BAD, DOWN = WorkFailed("it is bad", next_step="look"), Unavailable("it is down", next_step="wait")
NOT_BEGUN = "it was not begun, since the Spark of this task has ended"
ENDED = "Airflow ended this task, and Spark with it"


@pytest.mark.parametrize(
    ("errors", "dies", "ended", "begun", "told"),
    [
        ({}, None, None, [1, 2, 3], []),
        ({2: BAD}, None, None, [1, 2, 3], ["1 of 3 manifests of this task failed: manifest 2 of shop.2: it is bad"]),
        ({2: ValueError("boom")}, None, None, [1, 2, 3], ["manifest 2 of shop.2: ValueError: boom"]),
        ({1: DOWN}, None, None, [1], ["1 of 3 manifests of this task failed: manifest 1 of shop.1: it is down"]),
        ({1: BAD}, 1, None, [1], ["manifest 1 of shop.1: it is bad", f"manifest 2 of shop.2: {NOT_BEGUN}"]),
        ({}, 2, None, [1, 2], [f"1 of 3 manifests of this task failed: manifest 3 of shop.3: {NOT_BEGUN}"]),
        ({}, 3, None, [1, 2, 3], []),
        ({}, None, 2, [1, 2], [ENDED]),
        ({}, None, 3, [1, 2, 3], []),
    ],
)
def test_a_bundle_goes_on_after_an_error_of_one_manifest_and_is_red_when_some_were_not_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    errors: Mapping[int, Exception],
    dies: int | None,
    ended: int | None,
    begun: list[int],
    told: list[str],
) -> None:
    """``dies``: at which manifest Spark dies; ``ended``: at which one Airflow ends the task."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    file = tmp_path / "shop.yaml"
    file.write_text(
        "{pipeline: shop, each_topic: true, source: {kafka: {connection: k, topics_regex: 'shop-.*'}},"
        " decode: {format: raw}, sinks: [{files: {root: lake}}]}"
    )
    operator = ProcessManifestOperator(task_id="process", pipeline=load(file, {}), manifest_id=[1, 2, 3])
    session: Any = SimpleNamespace(has_died=False)
    operator._session = session
    seen: list[int] = []

    def process(_: Any, of: Manifest, *, replay: bool) -> None:
        assert not replay
        seen.append(of.id)
        session.has_died = of.id == dies
        operator.ended_by_airflow = of.id == ended
        if of.id in errors:
            raise errors[of.id]

    monkeypatch.setattr(operator, "_process", process)
    given = {"ti": SimpleNamespace(max_tries=0), "params": {}}
    manifests = [manifest(number) for number in (1, 2, 3)]
    if told:
        with pytest.raises(TidemarkError) as failed:
            operator._process_bundle(given, manifests)
        assert [words for words in told if words not in failed.value.what] == []
    else:
        operator._process_bundle(given, manifests)
    assert seen == begun
