"""The alert rules and the dashboard of docs/monitoring ask for gauges and labels that there are."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemark.model.manifest import Counts
from tidemark.operations.lag import Lag
from tidemark.views import open_metrics
from tidemark.views.pipelines import PipelineView

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> dict[str, str]:
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    of_panels = {panel["title"]: target["expr"] for panel in panels for target in panel["targets"]}
    return {rule["alert"]: rule["expr"] for rule in rules()} | of_panels


def labels() -> dict[str, set[str]]:
    """The labels of each gauge, as a pipeline with everything prints them."""
    now = datetime(2024, 3, 1, tzinfo=UTC)
    view = PipelineView.__new__(PipelineView)
    known = {
        "pipeline_name": "demo",
        "manifests": {"done": 1},
        "problems": [],
        "retries": (),
        "dead_lettered": 0,
        "lost": 0,
        "newest": Counts(),
        "at_work": (),
        "waiting": (),
        "planned": True,
    }
    for name, value in {**known, "published_up_to": now, "max_age": timedelta(hours=2), "last_done_at": now}.items():
        object.__setattr__(view, name, value)
    lag = Lag("t", 0, log_start=0, planned=2, last_stable=3, log_end=3, unpublished=2, open_transaction=None)
    printed = open_metrics.text([open_metrics.Measured(view, [lag], 1, 1, 2.0, 0, 0)])
    samples = re.findall(r"^(tidemark_\w+)\{(.*)\}", printed, re.MULTILINE)
    return {name: set(re.findall(r'(\w+)="', text)) for name, text in samples}


@pytest.mark.parametrize(("name", "expression"), expressions().items())
def test_an_expression_asks_for_gauges_and_labels_that_there_are(name: str, expression: str) -> None:
    known = labels()
    asked = re.findall(r"(tidemark_\w+)(?:\{([^}]*)\})?", expression)
    assert asked, name
    for gauge, filters in asked:
        assert gauge in open_metrics.HELP
        assert set(re.findall(r"(\w+)!?=", filters)) <= known[gauge]
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert set(group.split(", ")) <= set.union(*(known[gauge] for gauge, _ in asked))


def test_each_alert_names_the_pipeline_and_a_command() -> None:
    for rule in rules():
        told = rule["annotations"]
        assert told["summary"].startswith("{{ $labels.pipeline }}: ")
        assert re.search(r"tidemark [a-z-]+(?: [a-z]+)? \{\{ \$labels\.pipeline \}\}", told["description"]), rule[
            "alert"
        ]


def test_each_gauge_is_watched() -> None:
    asked = " ".join(expressions().values())
    unwatched = {name for name in open_metrics.HELP if name not in asked}
    assert unwatched == {"tidemark_rows_written", "tidemark_last_done_seconds"}
