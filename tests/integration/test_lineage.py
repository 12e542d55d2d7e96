"""OpenLineage: what a task tells of the manifest that it has done."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

from psycopg.conninfo import conninfo_to_dict

from sandbox.bootstrap.apart import packages_of
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World
from tidemark.airflow import lineage
from tidemark.airflow.lineage import PROVIDER, RANGES, Input, Lineage, WrittenDataset, lineage_if_asked
from tidemark.errors import Unavailable
from tidemark.lifecycle.publish import Ending, Outcome
from tidemark.model.dataset import Dataset
from tidemark.model.manifest import Counts
from tidemark.sinks.files.sink import FilesOutput

DONE = Outcome(1, 1, Ending.PUBLISHED, Counts())

# In a process of its own, which has the packages: prints what the provider would send.
TOLD = """
import json, sys
from openlineage.client.serde import Serde
from tidemark.airflow.lineage import Input, Lineage, WrittenDataset, facets
from tidemark.model.dataset import Dataset
given = json.load(sys.stdin)
inputs = [Input(Dataset(**entry.pop("dataset")), **entry) for entry in given.pop("inputs")]
outputs = [WrittenDataset(Dataset(**entry.pop("dataset")), **entry) for entry in given.pop("outputs")]
told = facets([Lineage(**given, inputs=inputs, outputs=outputs)])
print(json.dumps({"inputs": [Serde.to_dict(part) for part in told.inputs],
                  "outputs": [Serde.to_dict(part) for part in told.outputs]}))
"""


def test_topics_have_their_exact_ranges_and_each_target_its_rows(make_table_world: Callable[..., TableWorld]) -> None:
    world = make_table_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(60, bad_every=20)
    world.ok("run", "demo")
    [manifest] = world.manifests()
    told = lineage.lineage(world.context(), 1, 1)
    ranges = [{key: part[key] for key in ("partition", "start", "end")} for part in manifest["ranges"]]
    receipt = world.context().database.attempts.receipt(1, 1)
    assert receipt is not None
    size = sum(count.bytes for count in receipt.partitions)
    topic = Dataset(f"kafka://{world.broker.bootstrap_servers}", world.topic)
    assert (told.pipeline_name, told.manifest_id, told.attempt) == ("demo", 1, 1)
    assert told.inputs == [Input(topic, 60, size, ranges)]
    lake, table = told.outputs
    files = [path for path in world.lake.glob("**/*.parquet") if not path.is_relative_to(world.lake / "_staging")]
    assert lake == WrittenDataset(
        Dataset("file", str(world.lake)), 57, sum(path.stat().st_size for path in files), len(files)
    )
    warehouse = conninfo_to_dict(world.targets["warehouse"])
    server = f"postgres://{warehouse['host']}:{warehouse['port']}"
    assert table == WrittenDataset(Dataset(server, f"{warehouse['dbname']}.public.latest"), 57, None, None)


def test_airflows_provider_takes_it_as_it_is() -> None:
    ranges = [{"partition": 0, "start": 5, "end": 12}]
    read = {"dataset": {"namespace": "kafka://a:9092", "name": "orders"}, "read": 7, "bytes": 70, "ranges": ranges}
    written = {"dataset": {"namespace": "file", "name": "/lake"}, "rows": 7, "bytes": 900, "files": 1}
    given = {"pipeline_name": "orders", "manifest_id": 7, "attempt": 2, "inputs": [read], "outputs": [written]}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TOLD],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": str(packages_of("lineage"))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    [topic], [folder] = told["inputs"], told["outputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://a:9092", "orders")
    facet = topic["inputFacets"][RANGES]
    assert {name: facet[name] for name in ("pipeline", "manifest", "attempt", "ranges")} == {
        "pipeline": "orders", "manifest": 7, "attempt": 2, "ranges": ranges,
    }  # fmt: skip
    statistics = topic["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (7, 70)
    statistics = folder["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (7, 900, 1)


def test_without_the_provider_nothing_is_asked_and_a_silent_target_fails_no_task(
    make_world: Callable[..., World],
) -> None:
    world = make_world()
    world.produce(10)
    world.ok("run", "demo")
    silent = mock.patch.object(FilesOutput, "dataset", side_effect=Unavailable("the disk hangs", next_step="wait"))
    with silent as asked:
        assert lineage_if_asked(world.context(), DONE) is None
        assert not asked.called
        with (
            mock.patch.object(lineage, "find_spec", return_value=object()) as find_spec,
            mock.patch.object(lineage.LOG, "warning") as warning,
        ):
            assert lineage_if_asked(world.context(), DONE) is None
            find_spec.assert_called_once_with(PROVIDER)
    assert warning.call_args.args[0] % warning.call_args.args[1:] == (
        "the lineage of manifest 1 was not sent: the disk hangs"
    )
    with mock.patch.object(lineage, "find_spec", return_value=object()):
        told = lineage_if_asked(world.context(), DONE)
    assert isinstance(told, Lineage)
    assert [output.dataset.name for output in told.outputs] == [str(world.lake)]
