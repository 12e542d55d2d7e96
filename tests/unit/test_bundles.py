"""How manifests become bundles of a task, in which order they are done, and what is raised when some fail."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tidemark.airflow.bundles import bundled, flat, in_turn, refuse_failed
from tidemark.cli import doctor
from tidemark.environment import Environment
from tidemark.errors import NotDone, WorkFailed
from tidemark.model.findings import Finding
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.model.offsets import Range, TopicPartition
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines

PLANNED, DONE, FAILED = ManifestState.PLANNED, ManifestState.DONE, ManifestState.FAILED


def manifest(
    number: int, *, span: int = 1, name: str = "", state: ManifestState = PLANNED, attempt: int = 0
) -> Manifest:
    of = name or f"shop.{number}"
    made = datetime(2026, 1, 1, tzinfo=UTC)
    return Manifest(
        id=number, pipeline_name=of, run_key="a run", slice=0, state=state, attempt=attempt, reason=None, alive=False,
        ranges=(Range(TopicPartition(of, "an id", 0), 0, span),), publications=(), created_at=made, done_at=None,
        retired=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "bundles"),
    [
        ([], []),
        ([1, 1, 1, 1, 1], [[1, 2, 3], [4, 5]]),
        ([6, 4, 1], [[1, 2], [3]]),  # ten offsets in all, at most
        ([50, 1, 50, 1, 1], [[1], [2], [3], [4, 5]]),  # more than ten have a task of their own
    ],
)
def test_a_bundle_has_three_manifests_and_ten_offsets_at_most(spans: list[int], bundles: list[list[int]]) -> None:
    manifests = [manifest(number, span=span) for number, span in enumerate(spans, 1)]
    assert bundled(manifests, 3, 10) == bundles
    assert flat(bundles) == [each.id for each in manifests]


def test_doctor_has_a_way_for_many_topics_until_the_file_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"shop-{number}" for number in range(11)]
    monkeypatch.setattr(doctor, "database_of", lambda _: nullcontext())
    monkeypatch.setattr(doctor, "planned_topics", lambda *_: topics)
    environment = Environment.from_variables({})

    def findings(**airflow: int) -> list[Finding]:
        file = tmp_path / "shop.yaml"
        values = {"source": {"kafka": {"connection": "k", "topics_regex": "shop-.*"}}, "decode": {"format": "raw"}}
        sinks = [{"files": {"root": "lake"}}]
        file.write_text(
            yaml.safe_dump({"pipeline": "shop", "each_topic": True, "airflow": airflow, "sinks": sinks, **values})
        )
        group = load(file, {})
        assert isinstance(group, Group)
        return doctor._of_group(environment, group)[1]

    [finding] = findings()
    assert finding.check == "shop: engine"
    assert "tidemark spark serve" in finding.next_step
    assert "airflow: {bundle: 10}" in finding.next_step
    assert findings(bundle=10) == []


def test_a_bundle_is_refused_where_there_is_one_topic(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "{pipeline: shop, airflow: {bundle: 2}, source: {kafka: {connection: k, topics: [a]}}, decode: {format: raw},"
        " sinks: [{files: {root: lake}}]}"
    )
    with pytest.raises(InvalidPipelines, match=r"airflow\.bundle: is for a file with each_topic"):
        load(file, {})


def test_the_list_of_a_plan_without_bundles_is_its_manifests() -> None:
    assert flat([3, 1, 2]) == [3, 1, 2]


def test_what_was_begun_least_often_comes_first_and_a_pipeline_keeps_its_order() -> None:
    killer, later = manifest(1, name="shop.a", state=FAILED, attempt=2), manifest(2, name="shop.a")
    done, once = manifest(3, state=DONE, attempt=5), manifest(4, state=FAILED, attempt=1)
    assert [each.id for each in in_turn([killer, later, done, once])] == [3, 4, 1, 2]
    assert [each.id for each in in_turn([later, manifest(5)])] == [2, 5]


def test_the_error_of_a_bundle_names_what_failed_and_airflow_tries_it_again_when_that_may_help() -> None:
    manifests = [manifest(number) for number in range(1, 15)]
    refuse_failed("shop", manifests, {}, may_help=False)
    alone = {2: WorkFailed("the disk is full\nmore", next_step="free some")}
    with pytest.raises(
        WorkFailed, match=r"1 of 14 manifests of this task failed: manifest 2 of shop\.2: the disk is full"
    ) as failed:
        refuse_failed("shop", manifests, alone, may_help=True)
    assert "more" not in failed.value.what
    assert failed.value.next_step.startswith("tidemark status shop has the next step of each")
    twelve = {each.id: NotDone("no", next_step="look") for each in manifests[:12]}
    with pytest.raises(NotDone, match=r"12 of 14 manifests .* manifest 10 of shop\.10: no; and 2 more"):
        refuse_failed("shop", manifests, twelve, may_help=False)
