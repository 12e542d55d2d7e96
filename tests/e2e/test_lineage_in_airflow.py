"""Airflow's provider for OpenLineage asks a real task what it has read and written."""

import json
from pathlib import Path

import pytest

from sandbox.bootstrap.apart import packages_of
from tests.worlds.airflow_world import DAG, AirflowWorld
from tidemark.airflow.lineage import RANGES


@pytest.mark.thorough  # test_lineage.py has its facets, in the provider's own words
def test_a_task_tells_its_topic_with_the_ranges_of_its_manifest(airflow_world: AirflowWorld, tmp_path: Path) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    told = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(told), "append": True}
    more = {"PYTHONPATH": str(packages_of("lineage")), "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport)}
    before = {name: airflow.env.get(name) for name in more}
    demo.world.produce(60)
    demo.deploy()
    airflow.env.update(more)
    airflow.restart_scheduler()  # it forks the processes of tasks
    try:
        demo.succeed(demo.trigger())
    finally:
        for name, value in before.items():
            airflow.env.pop(name) if value is None else airflow.env.update({name: value})
        airflow.restart_scheduler()
        airflow.wait_healthy()
    events = [json.loads(line) for line in told.read_text().splitlines()]
    [done] = [
        event for event in events if event["eventType"] == "COMPLETE" and event["job"]["name"] == f"{DAG}.process"
    ]
    [topic], [lake] = done["inputs"], done["outputs"]
    [manifest] = demo.world.manifests()
    assert topic["name"] == demo.world.topic
    facet = topic["inputFacets"][RANGES]
    assert (facet["pipeline"], facet["manifest"], facet["attempt"]) == (DAG, manifest["id"], 1)
    assert facet["ranges"] == [{key: part[key] for key in ("partition", "start", "end")} for part in manifest["ranges"]]
    assert (lake["namespace"], lake["name"]) == ("file", str(demo.world.lake))
    assert lake["outputFacets"]["outputStatistics"]["rowCount"] == 60
