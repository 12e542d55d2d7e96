"""docs/backfills.md on a real Airflow: its commands do what it says, also for days that one manifest holds."""

import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.airflow_api import FINAL
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from sandbox.services.stack import shell_text
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.records_of_hours import last_tick, produce_at

PAGE = (CHECKOUT / "docs" / "backfills.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TIDEMARK = ("TIDEMARK_DB", "TIDEMARK_HOME", "TIDEMARK_PIPELINES", "TIDEMARK_SPARK_JARS", "AIRFLOW_CONN_KAFKA_DEFAULT")
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]


def test_the_commands_of_the_page_fill_in_and_replay_days_that_one_manifest_holds(
    served_world: AirflowWorld, postgres: Postgres, broker: Broker, tmp_path: Path
) -> None:
    demo, airflow = served_world, served_world.airflow
    today = last_tick(DAY)
    first, second = today - 2 * DAY, today - DAY
    variables = {name: airflow.env[name] for name in TIDEMARK}
    (tmp_path / "env").write_text(shell_text(variables, airflow, postgres, broker))

    def typed(commands: str) -> str:
        """All that the commands of a block print; its dates are those of this test."""
        for name, here in (("2024-03-02", f"{first:%Y-%m-%d}"), ("2024-03-03", f"{second:%Y-%m-%d}"), ("orders", DAG)):
            commands = commands.replace(name, here)
        script = f"set -e\n. {tmp_path}/env\n{commands}"
        done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=600)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def ended(number: int) -> dict[str, str]:
        """Id and state of each run, when there are so many and all have ended."""

        def runs() -> dict[str, str]:
            return {run["dag_run_id"]: run["state"] for run in airflow.runs(DAG)}

        wait_until(lambda: len(runs()) >= number and set(runs().values()) <= set(FINAL), "the runs to end", timeout=400)
        assert set(runs().values()) == {"success"}, [demo.logs(run_id) for run_id in runs()]
        return runs()

    def started() -> set[str]:
        """When each run of the backfill began."""
        return {run["start_date"] for run in airflow.runs(DAG) if run["run_type"] == "backfill"}

    fill_in, again, single = COMMANDS
    demo.world.settings |= {"schedule": "@daily", "kafka": {"slice": {"max_records": 1000}}}
    demo.world.write_pipeline()
    for day in (first, second):
        produce_at(demo.world, 20, day - 12 * HOUR)
    demo.deploy()
    [scheduled] = ended(1)
    assert demo.attempts() == [(1, "published")], "with catchup: false the first run takes all days as one manifest"

    typed(fill_in)
    backfilled = sorted(ended(3).keys() - {scheduled})
    assert demo.attempts() == [(1, "published")]
    for run_id, begin, end in zip(backfilled, (first - DAY, first), (first, second), strict=True):
        interval = f"from {begin:%Y-%m-%d} 00:00:00 to {end:%Y-%m-%d} 00:00:00 UTC"
        assert f"this run stands for the interval {interval}" in demo.logs(run_id, ["success"])

    airflow.wait_backfilled(DAG)
    before = started()
    typed(again)
    wait_until(lambda: not before & started(), "both runs to begin again", timeout=200, interval=0.5)
    ended(3)
    first_one, *others = demo.attempts()  # both ask for it at once: one does it, and may have overtaken the other
    assert first_one == (1, "published")
    assert [state for _, state in others] in (["unchanged"], ["fenced", "unchanged"])
    done = 1 + len(others)
    logs = "".join(demo.logs(run_id, ["success"]) for run_id in backfilled)
    waited, overtaken = f"nothing to do: attempt {done} of airflow demo", "manifest 1 attempt 2: superseded"
    assert waited in logs or (others[0][1] == "fenced" and overtaken in logs), "the other run says why it did nothing"

    typed(single)
    ended(6)
    assert demo.attempts()[-1] == (done + 1, "unchanged")
    assert len(demo.world.manifests()) == 1, "a dry run plans nothing"
    demo.world.assert_complete()
